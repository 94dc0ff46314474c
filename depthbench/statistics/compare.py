"""What changed from one report to another: per cell and per design, paired by seed."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from depthbench.errors import InputError
from depthbench.statistics.changes import EQUAL, changes_of
from depthbench.statistics.estimates import NO_NOISE, Estimate, with_holm
from depthbench.statistics.noise import noise_of
from depthbench.statistics.ranks import ALPHA_LADDER, Rank, ranks
from depthbench.statistics.reading import (
    Row,
    Rows,
    finished,
    grid_of,
    records_of,
    refuse_repeats,
)

CELL_KEY = (
    *("design", "design_version", "options", "layers", "d_model"),
    *("budget", "tokens", "precision", "seed"),
)
_DESIGN = ("design", "design_version", "options")
Verdict = Literal["better", "worse", "no readable change", "equal", "unknown"]
_Key = tuple[Any, ...]


@dataclass(frozen=True)
class CellChange:
    """The runs of one cell, all seeds that both reports have. `cell`: the key without the seed.

    `change`: loss after minus before, nats. `lost` and `gained`: seeds whose run finished in one
    report only, with the status in the other.
    """

    cell: Mapping[str, Any]
    before: float | None
    after: float | None
    change: Estimate
    lost: Mapping[int, str]
    gained: Mapping[int, str]


@dataclass(frozen=True)
class DesignChange:
    """The mean change of one design over its cells, with Holm's family over designs.

    A run that was lost makes the design worse, whatever the others did. `rank_before` and
    `rank_after` are over what both reports hold; None with a reason.
    """

    design: Mapping[str, Any]
    change: Estimate
    verdict: Verdict
    num_lost: int
    rank_before: int | None
    rank_after: int | None
    rank_reason: str | None


@dataclass(frozen=True)
class Comparison:
    """Two reports. `new` and `gone`: keys of runs that only one of them holds."""

    key: tuple[str, ...]
    cells: tuple[CellChange, ...]
    designs: tuple[DesignChange, ...]
    new: tuple[Mapping[str, Any], ...]
    gone: tuple[Mapping[str, Any], ...]

    @property
    def regressions(self) -> list[DesignChange]:
        return [design for design in self.designs if design.verdict == "worse"]

    def document(self) -> dict[str, Any]:
        """The same as JSON knows it."""
        return asdict(self)


def paired_change(a_rows: Rows, b_rows: Rows, key: Sequence[str] = CELL_KEY) -> Comparison:
    """How the losses of report B differ from those of report A, run by run.

    `key` names the fields in which two rows must agree to be one run; it has `design`, `layers`,
    `d_model` and `seed`. Leave `design_version` out of it to compare two versions of a design. The
    noise is that of a design's changes between its seeds within a cell, pooled over its cells;
    where no cell has two seeds, that of the changes between its cells, which then count as a
    sample. Raises `InputError` when a report holds a key twice, naming the paths.
    """
    lacking = {"design", "layers", "d_model", "seed"} - set(key)
    if lacking:
        raise InputError(f"the key {', '.join(key)} lacks {', '.join(sorted(lacking))}: add them")
    before, after = _by_key(a_rows, key), _by_key(b_rows, key)
    common = [k for k in before if k in after]
    members: dict[_Key, dict[_Key, list[_Key]]] = defaultdict(lambda: defaultdict(list))
    for k in common:
        members[_design_part(k, key)][_part(k, key, set(key) - {"seed"})].append(k)
    ranked = [_ranks([rows[k] for k in common], key) for rows in (before, after)]
    cells: list[CellChange] = []
    designs: list[DesignChange] = []
    for design, groups in members.items():
        own, estimate = _of_design(list(groups.values()), before, after, key)
        cells += own
        names = [name for name in _DESIGN if name in key]
        places = [ranks_of.get(design, Rank(None, reason=NO_NOISE)) for ranks_of in ranked]
        num_lost = sum(len(cell.lost) for cell in own)
        told = dict(zip(names, design, strict=True))
        old, new = places
        why = old.reason or new.reason
        designs.append(DesignChange(told, estimate, "unknown", num_lost, old.rank, new.rank, why))
    adjusted = with_holm([design.change for design in designs])
    return Comparison(
        tuple(key),
        tuple(cells),
        tuple(
            replace(design, change=change, verdict=_verdict(change, design.num_lost))
            for design, change in zip(designs, adjusted, strict=True)
        ),
        tuple(dict(zip(key, k, strict=True)) for k in after if k not in before),
        tuple(dict(zip(key, k, strict=True)) for k in before if k not in after),
    )


def _by_key(rows: Rows, key: Sequence[str]) -> dict[_Key, Row]:
    """The run of every key; one that came to an end goes before one that did not."""
    records = records_of(rows)
    refuse_repeats(records, key)
    found: dict[_Key, Row] = {}
    for record in records:
        if record.get("design") is not None:
            k = tuple(record.get(name) for name in key)
            if k not in found or record["status"] in ("done", "diverged"):
                found[k] = record
    return found


def _part(k: _Key, key: Sequence[str], names: Collection[str]) -> _Key:
    return tuple(value for name, value in zip(key, k, strict=True) if name in names)


def _design_part(k: _Key, key: Sequence[str]) -> _Key:
    return tuple(k[key.index(name)] for name in _DESIGN if name in key)


def _of_design(
    groups: Sequence[Sequence[_Key]],
    before: Mapping[_Key, Row],
    after: Mapping[_Key, Row],
    key: Sequence[str],
) -> tuple[list[CellChange], Estimate]:
    """The cells of one design, and its mean change."""
    both = [[k for k in runs if finished(before[k]) and finished(after[k])] for runs in groups]
    losses = [[(before[k]["loss"], after[k]["loss"]) for k in runs] for runs in both]
    found, overall = changes_of([[new - old for old, new in cell] for cell in losses])
    cells = []
    for runs, cell, change in zip(groups, losses, found, strict=True):
        names = [name for name in key if name != "seed"]
        old, new = np.mean(cell, axis=0).tolist() if cell else (None, None)
        told = dict(zip(names, _part(runs[0], key, names), strict=True))
        lost, gained = _only(runs, before, after), _only(runs, after, before)
        cells.append(CellChange(told, old, new, change, lost, gained))
    return cells, overall


def _only(
    runs: Sequence[_Key], first: Mapping[_Key, Row], second: Mapping[_Key, Row]
) -> dict[int, str]:
    """Seeds whose run finished in `first` only, with their status in `second`."""
    return {
        int(first[k]["seed"]): str(second[k]["status"])
        for k in runs
        if finished(first[k]) and not finished(second[k])
    }


def _verdict(change: Estimate, num_lost: int) -> Verdict:
    if num_lost:
        return "worse"
    if change.reason == EQUAL:
        return "equal"
    if change.p_holm is None or change.value is None:
        return "unknown"
    if change.p_holm > ALPHA_LADDER:
        return "no readable change"
    return "worse" if change.value > 0 else "better"


def _ranks(rows: Sequence[Row], key: Sequence[str]) -> dict[_Key, Rank]:
    """Rank over the ladder of every design in rows that both reports hold."""
    blank = {"design_version": 0, "options": "{}"}
    plain = {name: value for name, value in blank.items() if name not in key}
    grid = grid_of([{**row, **plain} for row in rows])
    [found] = ranks(noise_of(grid), [grid.ladder()], ALPHA_LADDER)
    keys = [(k.design, k.version, k.options) for k in grid.designs]
    names = [name for name in _DESIGN if name in key]
    return {_part(k, _DESIGN, names): rank for k, rank in zip(keys, found, strict=True)}
