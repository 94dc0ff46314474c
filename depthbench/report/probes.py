"""The layer probes of a section: which cell stands for a design, its maps, and its numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from depthbench.report.cells import (
    Array,
    Cell,
    Cells,
    median_cell,
    ordered,
    why_unprobed,
)
from depthbench.report.lines import Best, Line, ShapeKey, status_text
from depthbench.report.maps import Limits, common_limits
from depthbench.report.reading import shapes_of
from depthbench.report.series import Series

Key = tuple[str, str]  # a probe and one of its values


@dataclass(frozen=True)
class Chosen:
    """The cell that stands for a design: the deepest that was probed, of its seeds the median.

    `executed`: how many blocks it runs in a forward pass, where that is not how many it has.
    """

    series: Series
    line: Line
    cell: Cell | None
    note: str
    executed: int = 0

    @property
    def num_blocks(self) -> int:
        """Blocks that are run: those of the shape, unless loops run more."""
        return self.executed or self.line.shape.layers

    def values(self, key: Key) -> Array | None:
        """What the cell has under that key."""
        probed = self.cell.probes.get(key[0]) if self.cell else None
        return probed.values.get(key[1]) if probed else None


@dataclass(frozen=True)
class MapColumn:
    """One kind of map, and the limits of its colours, the same for every cell."""

    key: Key
    title: str
    unit: str
    axes: tuple[str, str]
    limits: Limits


@dataclass(frozen=True)
class Probes:
    """What a section's cells were asked. `columns` are its maps."""

    chosen: list[Chosen]
    columns: list[MapColumn]
    names: list[str]

    @property
    def answered(self) -> list[Chosen]:
        return [chosen for chosen in self.chosen if chosen.cell]


def probes_of(best: Best, order: Sequence[Series], cells: Cells, members: Iterable[Cell]) -> Probes:
    """The probes of a section whose finished cells are `members`."""
    shapes = shapes_of(best)
    shown = [series for series in order if any(owner == series for owner, _ in best)]
    return Probes(
        [_choose(series, best, shapes, cells) for series in shown],
        map_columns(list(members)),
        ordered(name for cell in members for name in cell.probes),
    )


def _choose(series: Series, best: Best, shapes: Sequence[ShapeKey], cells: Cells) -> Chosen:
    own = [best[series, shape] for shape in reversed(shapes) if (series, shape) in best]
    for line in own:
        cell = median_cell(line, cells)
        if cell:
            return Chosen(series, line, cell, _note(line, cell, shapes, best, cells))
    return Chosen(series, own[0], None, why_unprobed(own[0], cells))


def _note(line: Line, cell: Cell, shapes: Sequence[ShapeKey], best: Best, cells: Cells) -> str:
    """Which seed it is, and why it is not of the deepest shape."""
    parts = []
    if len(line.done) > 1:
        parts.append(f"seed {cell.record['seed']}, the median of {len(line.done)} by loss")
    if line.shape != shapes[-1]:
        deeper = best.get((line.series, shapes[-1]))
        why = "not run" if deeper is None else status_text(deeper.records)
        why = why_unprobed(deeper, cells) if deeper and deeper.done else why
        parts.append(f"{shapes[-1].label}: {why}")
    return "; ".join(parts)


def map_columns(members: Sequence[Cell]) -> list[MapColumn]:
    """Every kind of map that a cell has."""
    columns = []
    for name in ordered(name for cell in members for name in cell.probes):
        found = [cell.probes[name] for cell in members if name in cell.probes]
        kinds = dict.fromkeys(k for p in found for k, v in p.values.items() if v.ndim == 2)
        for kind in kinds:
            holders = [probed for probed in found if kind in probed.values]
            first = holders[0].document
            scales = [tuple(s) if (s := p.document.get("scale")) else None for p in holders]
            limits = common_limits(scales, [probed.values[kind] for probed in holders])
            title = holders[0].title + (f", {kind}" if len(kinds) > 1 else "")
            rows, across = first.get("axes") or ("row", "column")
            columns.append(
                MapColumn((name, kind), title, str(first["unit"]), (rows, across), limits)
            )
    return columns
