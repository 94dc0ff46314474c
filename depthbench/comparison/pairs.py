"""Two reports laid side by side: what is comparable is compared, the rest is named."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from depthbench.comparable import (
    RUN,
    Difference,
    Setting,
    differences,
    run_differences,
    settings,
    together,
)
from depthbench.comparison.reading import Report
from depthbench.comparison.runs import Runs, best_rates, runs_of
from depthbench.comparison.speed import Speed, speed_of
from depthbench.comparison.verdicts import regression
from depthbench.statistics import CellChange, Comparison, DesignChange, paired_change
from depthbench.store import Record

_DESIGN = ("design", "design_version", "options")


@dataclass(frozen=True)
class Judged:
    """The change of a design with its cells. `regression`: why it counts as one."""

    change: DesignChange
    cells: tuple[CellChange, ...]
    speed: Speed
    regression: str | None


@dataclass(frozen=True)
class Versions:
    """A design whose versions are not the same in both reports; in one there may be none."""

    design: str
    options: str
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Compared:
    """One setting that both reports have, with the runs behind every key of `comparison`."""

    fields: Mapping[str, str]
    comparison: Comparison
    designs: tuple[Judged, ...]
    runs: Runs
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Apart:
    """Rows of one report that were compared with nothing, and in what they differ."""

    label: str
    num_rows: int
    fields: Mapping[str, str]
    differing: tuple[Difference, ...]


@dataclass(frozen=True)
class Pair:
    """Report `after` against report `before`.

    Without a run in common nothing is `compared`, and `differing` says why. `new` and `gone`:
    designs that one of them does not have in any setting.
    """

    before: Report
    after: Report
    key: tuple[str, ...]
    compared: tuple[Compared, ...]
    apart: tuple[Apart, ...]
    differing: tuple[Difference, ...]
    versions: tuple[Versions, ...]
    new: tuple[Mapping[str, Any], ...]
    gone: tuple[Mapping[str, Any], ...]

    @property
    def comparable(self) -> bool:
        return bool(self.compared)

    @property
    def regressions(self) -> list[Judged]:
        return [design for part in self.compared for design in part.designs if design.regression]


def compare_pair(
    before: Report, after: Report, tolerance: float | None = None, ignore_version: bool = False
) -> Pair:
    """How the results of one report differ from those of another.

    `ignore_version` takes two versions of a design for one. Raises `InputError` when a report
    holds a run twice.
    """
    key = tuple(name for name in RUN if not (ignore_version and name == "design_version"))
    found = settings(before.rows, after.rows)
    shared = [setting for setting in found if setting.shared]
    compared, strangers = [], list[Difference]()
    for setting in shared:
        part = _compared(setting, key, tolerance)
        if part.comparison.cells:
            compared.append(part)
        else:
            strangers += run_differences(setting.before, setting.after, key)
    apart = tuple(_apart(setting, found, before, after) for setting in found if not setting.shared)
    reasons = [*strangers, *(d for part in apart for d in part.differing)]
    numbered = not (before.published or after.published)  # published designs have no version
    names = [name for name in _DESIGN if name in key and (numbered or name != "design_version")]
    old, new = ({tuple(row[n] for n in names): None for row in r.rows} for r in (before, after))
    return Pair(
        before,
        after,
        key,
        tuple(compared),
        apart,
        () if compared else together(reasons),
        _versions(before.rows, after.rows) if numbered else (),
        tuple(dict(zip(names, design, strict=True)) for design in new if design not in old),
        tuple(dict(zip(names, design, strict=True)) for design in old if design not in new),
    )


def _compared(setting: Setting, key: tuple[str, ...], tolerance: float | None) -> Compared:
    before, after = best_rates(setting.before), best_rates(setting.after)
    comparison = paired_change(before, after, key)
    runs = runs_of(before, after, key)
    names = [name for name in _DESIGN if name in key]
    cells: dict[tuple[Any, ...], list[CellChange]] = defaultdict(list)
    for cell in comparison.cells:
        cells[tuple(cell.cell[name] for name in names)].append(cell)
    pairs: dict[tuple[Any, ...], list[tuple[Record, Record]]] = defaultdict(list)
    for old, new in runs.values():
        if old and new:
            pairs[tuple(old[name] for name in names)].append((old, new))
    judged = []
    for change in comparison.designs:
        which = tuple(change.design[name] for name in names)
        why = regression(change, cells[which], tolerance)
        judged.append(Judged(change, tuple(cells[which]), speed_of(pairs[which]), why))
    seeds = sorted({run[key.index("seed")] for run in runs})
    return Compared(setting.fields, comparison, tuple(judged), runs, tuple(seeds))


def _apart(setting: Setting, found: Sequence[Setting], before: Report, after: Report) -> Apart:
    report, rows = (before, setting.before) if setting.before else (after, setting.after)
    others = [other for other in found if (other.after if setting.before else other.before)]
    return Apart(report.label, len(rows), setting.fields, differences(setting, others))


def _versions(before: Sequence[Record], after: Sequence[Record]) -> tuple[Versions, ...]:
    found: dict[tuple[str, str], tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    for side, rows in enumerate((before, after)):
        for row in rows:
            found[row["design"], row["options"]][side].add(row["design_version"])
    return tuple(
        Versions(*which, tuple(sorted(old)), tuple(sorted(new)))
        for which, (old, new) in found.items()
        if old and new and old != new
    )
