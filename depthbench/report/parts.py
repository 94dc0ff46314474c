"""Everything that is worked out from the rows of one section, before any of it is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from depthbench.report.cells import Cell, Cells, cells_of
from depthbench.report.domains import Block, domain_blocks, domain_panels
from depthbench.report.efficiency import cost_panels
from depthbench.report.entries import Entries, entries_of
from depthbench.report.lines import Best, Line, best_lines, lines_of
from depthbench.report.panels import Panel, panels
from depthbench.report.probes import Probes, probes_of
from depthbench.report.sections import Section
from depthbench.report.series import Look, Series
from depthbench.report.standings import board_of


@dataclass(frozen=True)
class Parts:
    """One section. `members`: its finished cells, in the order of the lines."""

    section: Section
    lines: list[Line]
    best: Best
    losses: list[Panel]
    blocks: list[tuple[Block, list[Panel]]]
    costs: list[Panel]
    probes: Probes
    members: list[Cell]
    entries: Entries


def parts_of(section: Section, looks: Mapping[Series, Look], cells: Cells) -> Parts:
    """The parts of a section."""
    order: Sequence[Series] = list(looks)
    lines = lines_of(section.records)
    best = best_lines(lines)
    members = [cell for line in lines for cell in cells_of(line, cells)]
    blocks = domain_blocks(section.records, cells)
    board = board_of(best, lines)
    probes = probes_of(best, order, cells, members)
    return Parts(
        section,
        lines,
        best,
        panels(best, order, {key: cell.difference for key, cell in board.cells.items()}),
        [(block, domain_panels(block, order)) for block in blocks],
        cost_panels(lines, best, order),
        probes,
        members,
        entries_of(board, lines, best, blocks, probes),
    )
