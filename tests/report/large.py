"""A matrix as large as the published one, with every probe of a stack of 32 blocks."""

from pathlib import Path

from tests.report.cells import DESIGNS, config, result, write_cell
from tests.report.kit import DOMAINS, domains_document, noisy_probes, write_measures

SHAPES = ((16, 1216), (20, 1120), (24, 1024), (28, 960), (32, 896))
SEEDS = 3


def write_large(root: Path) -> None:
    """Ten designs at five shapes with three seeds, all with the matrices of the deepest."""
    probes = noisy_probes(SHAPES[-1][0])
    domains = domains_document(dict.fromkeys(DOMAINS, 3.0))
    for design in DESIGNS:
        for layers, width in SHAPES:
            for seed in range(SEEDS):
                cell = config(design, (layers, width, 2 * width), seed)
                folder = write_cell(root, cell, result(cell, 3.0 + seed / 100))
                write_measures(folder, probes, domains)
