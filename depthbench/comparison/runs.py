"""The runs of comparable rows, before and after."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from depthbench.errors import InputError
from depthbench.statistics.reading import design_of, grid_of, shape_of
from depthbench.store import Record

MOST_DESIGNS, MOST_RUNS = 100, 200_000
Runs = Mapping[tuple[Any, ...], tuple[Record | None, Record | None]]


def best_rates(rows: Sequence[Record]) -> Sequence[Record]:
    """Of several learning rates of a design at a shape, the one that stands for it in ranks."""
    refuse_wide(rows)
    grid = grid_of(rows)
    best = {
        (grid.designs[design], grid.shapes[shape]): cell.learning_rate
        for (design, shape), cell in grid.cells.items()
    }
    return [
        row
        for row in rows
        if best.get((design_of(row), shape_of(row)), row["learning_rate"]) == row["learning_rate"]
    ]


def refuse_wide(rows: Iterable[Record]) -> None:
    """Raises `InputError` for more than statistics can hold as an array, or compare in pairs."""
    designs = {design_of(row) for row in rows}
    shapes, seeds = {shape_of(row) for row in rows}, {row["seed"] for row in rows}
    if len(designs) > MOST_DESIGNS or len(designs) * len(shapes) * len(seeds) > MOST_RUNS:
        raise InputError(
            f"{len(designs)} designs at {len(shapes)} shapes with {len(seeds)} seeds are too many "
            f"to compare: at most {MOST_DESIGNS} designs and {MOST_RUNS:,} runs"
        )


def runs_of(before: Sequence[Record], after: Sequence[Record], key: Sequence[str]) -> Runs:
    """The rows of every run in both reports; as in `paired_change`, one that ended goes first."""
    sides = []
    for rows in (before, after):
        ordered = sorted(rows, key=lambda row: row["status"] in ("done", "diverged"))
        sides.append({tuple(row[name] for name in key): row for row in ordered})
    old, new = sides
    return {k: (old.get(k), new.get(k)) for k in dict.fromkeys([*old, *new])}
