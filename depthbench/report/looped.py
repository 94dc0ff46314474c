"""Everything that is worked out from the rows of a looped part, before any of it is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from depthbench.report.cells import Cell, Cells, cells_of, median_cell, ordered, why_unprobed
from depthbench.report.looped_panels import compute_panel, depth_panel, g_panel
from depthbench.report.loops import words
from depthbench.report.panels import Panel
from depthbench.report.probes import Chosen, Probes, map_columns
from depthbench.report.sections import Section
from depthbench.report.series import Look, Series
from depthbench.report.stacks import Stack, Stacks
from depthbench.report.towers import Tower, towers
from depthbench.report.values import count
from depthbench.report.worth import Fits, fits_of
from depthbench.store import Record

MAX_TOWERS = 6  # panels that a page has room for


@dataclass(frozen=True)
class Looped:
    """One looped part. `members`: its finished cells, in the order of the table."""

    section: Section
    stacks: Stacks
    towers: list[Tower]
    depth: list[Panel]
    compute: list[Panel]
    fits: Fits
    worth: Panel | None
    probes: Probes
    members: list[Cell]


def looped_of(section: Section, looks: Mapping[Series, Look], cells: Cells) -> Looped:
    """The parts of a looped group."""
    stacks = Stacks(scored(section.records))
    found = {stack.series for stack in stacks.every}
    order = [series for series in looks if series in found]
    high = towers(stacks, order)
    fits = fits_of(stacks, order)
    members = [cell for stack in stacks.every for cell in cells_of(stack.line, cells)]
    by_depth = [depth_panel(tower, stacks, i) for i, tower in enumerate(_drawn(high), 1)]
    by_compute = [compute_panel(series, stacks, looks) for series in order]
    return Looped(
        section,
        stacks,
        high,
        [panel for panel in by_depth if panel.values],
        [panel for panel in by_compute if panel],
        fits,
        g_panel(fits.found),
        _probes(stacks, order, cells, members),
        members,
    )


def scored(records: Sequence[Record]) -> list[Record]:
    """Without the runs that only looked for a learning rate."""
    return [record for record in records if record.get("role") != "tuning"]


def _drawn(high: Sequence[Tower]) -> list[Tower]:
    """Of many the ones with most to compare, in their order."""

    def size(tower: Tower) -> tuple[int, int, int]:
        return (len(tower.plain), sum(map(len, tower.lines.values())), tower.shape.d_model)

    kept = sorted(high, key=size, reverse=True)[:MAX_TOWERS]
    return [tower for tower in high if tower in kept]


def _probes(
    stacks: Stacks, order: Sequence[Series], cells: Cells, members: Sequence[Cell]
) -> Probes:
    """For each design the cell that executes most blocks of those that were probed."""
    chosen = []
    for series in order:
        own = [stack for stack in stacks.best if stack.series == series and stack.is_tied]
        own.sort(key=lambda s: (s.executed, s.tokens, s.shape.d_model), reverse=True)
        if own:
            chosen.append(_choose(series, own, cells))
    names = ordered(name for cell in members for name in cell.probes)
    return Probes(chosen, map_columns(members), names)


def _choose(series: Series, own: Sequence[Stack], cells: Cells) -> Chosen:
    for stack in own:
        cell = median_cell(stack.line, cells)
        if cell:
            seed = f", seed {cell.record['seed']}" if len(stack.line.done) > 1 else ""
            note = f"{words(stack.loop)}, {count(stack.tokens)} tokens{seed}"
            return Chosen(series, stack.line, cell, note, stack.executed)
    return Chosen(series, own[0].line, None, why_unprobed(own[0].line, cells), own[0].executed)
