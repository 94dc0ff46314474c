"""Cells of suites with loops, as the trainer leaves them, whose losses follow a known law."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from depthbench.config import CellConfig, CorpusRef
from depthbench.expand import expand
from depthbench.ledger import ledger
from depthbench.report.looped import Looped, looped_of
from depthbench.report.loops import loop_looks
from depthbench.report.sections import LOOPED, split
from depthbench.report.series import Look, Series, looks
from depthbench.scaling import Law
from depthbench.store import Record, cell_folders, records
from depthbench.suite import load_suite
from tests.report.cells import result, write_cell

CORPUS = CorpusRef(name="pypi-text", hash="9f2b6c01", tokenizer_hash="51c0ffee", vocab_size=4096)
LAW = Law(
    name="known",
    title="",
    kind="fitted",
    source="",
    E=1.6,
    A=1.3 * 1e6**0.35,
    alpha=0.35,
    B_D=1.3 * 2e6**0.37,
    beta=0.37,
    form="exponential",
    g={"p": 0.5, "q": 0.9, "c": 0.8},
)
CORE = {"layout": "prelude-core-coda", "prelude": 1, "coda": 1}
CORES = '{"layout":"prelude-core-coda","prelude":1,"coda":1,"forward":%d,"backward":%d}'
PAIRS = ((1, 1), (2, 2), (4, 2), (8, 1), (8, 8))


def core(forward: int, backward: int) -> dict[str, Any]:
    """One block, a core and one block."""
    return CORE | {"forward": forward, "backward": backward}


def ladder(*shapes: tuple[int, int]) -> dict[str, Any]:
    """Shapes of so many layers and such a width."""
    return {
        "name": "looped",
        "description": "",
        "match_on": None,
        "vocab_size": CORPUS.vocab_size,
        "norm_eps": 1e-10,
        "shapes": [{"layers": k, "d_model": d, "ffn": 2 * d, "heads": 2} for k, d in shapes],
    }


def suite(**changes: Any) -> dict[str, Any]:
    """Three widths and budgets in five (T, B), and at one of them the three controls."""
    document = {
        "name": "looped",
        "description": "",
        "designs": ["pre-ln"],
        "ladder": ladder((6, 40), (6, 56), (6, 80)),
        "loops": [core(*pair) for pair in PAIRS],
        "budget": {"tokens": 500_000},
        "also": [
            {"budget": {"tokens": 1_000_000}},
            {"budget": {"tokens": 2_000_000}},
            {
                "budget": {"tokens": 1_000_000},
                "ladder": ladder((6, 56)),
                "loops": [core(*pair) for pair in PAIRS if pair != (1, 1)],
                "controls": ["equal-parameters", "equal-flops", "untied"],
            },
        ],
        "corpus": "pypi-text",
        "sequence_length": 128,
        "batch_size": 4,
        "learning_rate": {"default": 3e-3},
        "seeds": [1],
        "evaluation": {"tokens": 65_536, "points": 1},
    }
    return document | changes


WHOLE = {
    "name": "whole",
    "designs": ["pre-ln", "deeploop"],
    "ladder": ladder((2, 96)),
    "loops": [{"layout": "whole", "rounds": rounds} for rounds in (1, 2, 4)],
    "also": [],
}


def cells_of(folder: Path, document: dict[str, Any]) -> list[CellConfig]:
    """The cells of a suite."""
    path = folder / f"{document['name']}.yaml"
    path.write_text(yaml.safe_dump(document))
    return expand(load_suite(str(path)), CORPUS)


def known_loss(cell: CellConfig) -> float:
    """By the law; a stack that shares nothing has g = 1."""
    counted = ledger(cell)
    shared = counted.recurrent > 0 and cell.loop is not None
    T, B = (cell.loop.forward, cell.loop.backward) if cell.loop and shared else (1, 1)
    return float(LAW.loss(counted.once, counted.recurrent, T, B, cell.tokens))


def document_of(cell: CellConfig, loss: float | None) -> dict[str, Any]:
    """A `result.json` with the cell's own ledger."""
    document = result(cell, loss)
    counted = ledger(cell).as_dict()
    kept = {"total_flops": counted["total_flops"], "once": counted["once"]}
    kept |= {"recurrent": counted["recurrent"], "parameters": counted["parameters"]}
    return document | {"ledger": document["ledger"] | kept}


def write_looped(
    root: Path,
    document: dict[str, Any],
    loss: Callable[[CellConfig], float | None] = known_loss,
    endings: Callable[[CellConfig], dict[str, Any] | None] = lambda cell: None,
) -> list[tuple[CellConfig, Path]]:
    """Every cell of the suite with its loss. `endings` replaces fields of a result."""
    written = []
    root.mkdir(parents=True, exist_ok=True)
    for cell in cells_of(root, document):
        ending = endings(cell)
        value = None if ending else loss(cell)
        written.append((cell, write_cell(root, cell, document_of(cell, value) | (ending or {}))))
    return written


def alignment_document(kappa: list[float | None]) -> dict[str, Any]:
    """As the probe writes it."""
    known = [value for value in kappa if value is not None]
    document: dict[str, Any] = json.loads(
        json.dumps(
            {
                "schema": 1,
                "probe": "alignment",
                "title": "Visit alignment",
                "definition": "how alignment is defined",
                "unit": "1 (unrelated) … visits",
                "axes": ["", "block"],
                "scale": None,
                "thresholds": {},
                "sample": {"corpus": "pypi-text", "windows": 4, "tokens": 512},
                "reason": None,
                "summary": {"mean": sum(known) / len(known)},
                "values": {"kappa": kappa},
            }
        )
    )
    return document


def read(root: Path) -> list[Record]:
    return records(cell_folders(root))


def part_of(rows: list[Record]) -> tuple[Looped, dict[Series, Look]]:
    appearance = looks(rows) | loop_looks(rows)
    [section] = split(rows, LOOPED)
    return looped_of(section, appearance, {}), appearance
