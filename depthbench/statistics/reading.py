"""From rows, as the store gives them, to a grid."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from depthbench.errors import InputError
from depthbench.statistics.grid import Cell, DesignKey, Diverged, Grid, Missing, Shape

Row = Mapping[str, Any]
Rows = Iterable[Row] | pd.DataFrame
_PLACED = ("design", "design_version", "options", "layers", "d_model", "learning_rate", "seed")


def records_of(rows: Rows) -> list[dict[str, Any]]:
    """Plain records, with None for every missing value."""
    if isinstance(rows, pd.DataFrame):
        whole = rows.astype(object)
        return [
            {str(k): v for k, v in r.items()}
            for r in whole.where(rows.notna(), None).to_dict("records")
        ]
    return [{k: None if _absent(k, v) else v for k, v in row.items()} for row in rows]


def _absent(name: str, value: Any) -> bool:
    """A loss that is not a number is kept, to be named as the reason why it does not count."""
    return value is pd.NA or (name != "loss" and isinstance(value, float) and math.isnan(value))


def grid_of(rows: Rows) -> Grid:
    """The matrix of comparable rows.

    Of several learning rates of a design at a shape, the one with the lowest mean loss stands for
    it, those with every run finished first. A row that is `done` with a loss that is no finite
    number is missing. Raises `InputError` when a seed is repeated, naming the paths.
    """
    placed, unplaced = [], []
    for record in records_of(rows):
        lacking = [name for name in _PLACED if record.get(name) is None]
        if lacking:
            what = f"{record.get('path')} has no {', '.join(lacking)}: {record.get('error')}"
            unplaced.append(Missing(record.get("seed"), what))
        else:
            placed.append(record)
    refuse_repeats(placed, _PLACED)
    rates: dict[tuple[DesignKey, Shape], dict[float, list[Row]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for record in placed:
        rates[design_of(record), shape_of(record)][record["learning_rate"]].append(record)
    designs = sorted({design for design, _ in rates})
    shapes = sorted({s for _, s in rates}, key=lambda s: (-s.aspect_ratio, s.layers))
    seeds = sorted({int(record["seed"]) for record in placed})
    loss_DSR = np.full((len(designs), len(shapes), len(seeds)), np.nan)
    cells = {}
    for (design, shape), lines in rates.items():
        rate = min(lines, key=lambda r: (*_order(lines[r]), r))
        place = designs.index(design), shapes.index(shape)
        for run in filter(finished, lines[rate]):
            loss_DSR[*place, seeds.index(run["seed"])] = run["loss"]
        cells[place] = _cell(rate, len(lines), lines[rate])
    return Grid(tuple(designs), tuple(shapes), tuple(seeds), loss_DSR, cells, tuple(unplaced))


def design_of(record: Row) -> DesignKey:
    return DesignKey(record["design"], int(record["design_version"]), record["options"])


def shape_of(record: Row) -> Shape:
    return Shape(int(record["layers"]), int(record["d_model"]))


def finished(record: Row) -> bool:
    """Whether a row has a loss to count."""
    loss = record.get("loss")
    return record["status"] == "done" and loss is not None and math.isfinite(loss)


def refuse_repeats(records: Iterable[Row], key: Sequence[str]) -> None:
    """Raises `InputError` when two rows that came to an end have the same `key`."""
    seen: dict[tuple[Any, ...], Row] = {}
    for record in records:
        if record["status"] not in ("done", "diverged"):
            continue
        first = seen.setdefault(tuple(record.get(name) for name in key), record)
        if first is not record:
            what = ", ".join(f"{name} {record.get(name)}" for name in key)
            raise InputError(
                f"{first.get('path')} and {record.get('path')} both hold {what}: a repeated seed "
                "is the same run, not a second sample. Leave one of them out"
            )


def _order(records: Sequence[Row]) -> tuple[bool, float]:
    losses = [record["loss"] for record in records if finished(record)]
    return len(losses) < len(records), float(np.mean(losses)) if losses else math.inf


def _cell(rate: float, num_rates: int, records: Iterable[Row]) -> Cell:
    diverged, missing = [], []
    for record in sorted(records, key=lambda r: int(r["seed"])):
        seed = int(record["seed"])
        if record["status"] == "diverged":
            step = record.get("diverged_step")
            diverged.append(Diverged(seed, None if step is None else int(step)))
        elif not finished(record):
            missing.append(Missing(seed, _why(record)))
    return Cell(float(rate), num_rates, tuple(diverged), tuple(missing))


def _why(record: Row) -> str:
    if record["status"] == "done":
        return f"is done, but its loss is {record.get('loss')}"
    error = record.get("error")
    return f"is {record['status']}" + (f" ({error})" if error else "")
