"""Table lines: the seeds of one design, shape and learning rate, and how they stand to Pre-LN."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from depthbench.report.series import Series, series_of
from depthbench.store import Record

IS_REFERENCE = "Pre-LN is the reference"
NO_RESULT = "no run of this line has finished"
NO_REFERENCE = "no finished Pre-LN run of this shape shares a seed"
NO_SPEED = "speed was not recorded"
NO_SPEED_REFERENCE = "no Pre-LN speed of this shape from the same host and suite"


class ShapeKey(NamedTuple):
    """What names a shape. The MLP width is left out: matching totals changes it by design."""

    layers: int
    d_model: int

    @property
    def aspect_ratio(self) -> float:
        return self.d_model / self.layers

    @property
    def x(self) -> float:
        """Where it stands on an axis."""
        return self.aspect_ratio

    @property
    def label(self) -> str:
        return f"L{self.layers} / d{self.d_model}"


class Spread(NamedTuple):
    """Mean and sample standard deviation over `n` seeds; one seed has none."""

    mean: float
    sd: float | None
    n: int


class Blank(str):
    """Why there is no value."""


@dataclass(frozen=True)
class Line:
    """All runs of one design at one shape and learning rate. `done`: one per seed."""

    series: Series
    shape: ShapeKey
    learning_rate: float
    records: Sequence[Record]
    done: Sequence[Record]

    @property
    def loss(self) -> Spread | Blank:
        return self.mean("loss")

    def mean(self, column: str) -> Spread | Blank:
        return spread([*self.of_seeds(column).values()]) or Blank(NO_RESULT)

    @property
    def by_seed(self) -> dict[int, float]:
        return self.of_seeds("loss")

    def of_seeds(self, column: str) -> dict[int, float]:
        found = {record["seed"]: record.get(column) for record in self.done}
        return {seed: value for seed, value in found.items() if value is not None}

    @property
    def complete(self) -> bool:
        return len(self.done) > 0 and all(record["status"] == "done" for record in self.records)

    @property
    def diverged(self) -> bool:
        return any(record["status"] == "diverged" for record in self.records)


Best = Mapping[tuple[Series, ShapeKey], Line]


def spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def lines_of(records: Iterable[Record]) -> list[Line]:
    """Lines of comparable records: shallow shapes first, then complete ones by loss."""
    groups: dict[tuple[Series, ShapeKey, float], list[Record]] = defaultdict(list)
    for record in records:
        shape = ShapeKey(record["layers"], record["d_model"])
        groups[series_of(record), shape, record["learning_rate"]].append(record)
    lines = [Line(*key, members, _one_per_seed(members)) for key, members in groups.items()]
    return sorted(lines, key=_order)


def _order(line: Line) -> tuple[float, bool, float, str]:
    loss = line.loss.mean if isinstance(line.loss, Spread) else math.inf
    return (-line.shape.aspect_ratio, not line.complete, loss, line.series.design)


def _one_per_seed(records: Sequence[Record]) -> list[Record]:
    done = sorted((r for r in records if r["status"] == "done"), key=lambda r: str(r["path"]))
    first: dict[int, Record] = {}
    for record in done:
        first.setdefault(record["seed"], record)
    return [first[seed] for seed in sorted(first)]


def repeats(lines: Iterable[Line]) -> list[Record]:
    """Finished runs left out of the means because their seed is counted already."""
    counted = {id(record) for line in lines for record in line.done}
    finished = (r for line in lines for r in line.records if r["status"] == "done")
    return [record for record in finished if id(record) not in counted]


def best_lines(lines: Iterable[Line]) -> Best:
    """The line to draw at every shape: of several learning rates the one with the lowest loss."""
    best: dict[tuple[Series, ShapeKey], Line] = {}
    for line in sorted(lines, key=_order):
        best.setdefault((line.series, line.shape), line)
    return best


def delta(line: Line, best: Best, column: str = "loss") -> Spread | Blank:
    """Loss, or another column, minus Pre-LN's at the same shape, paired by seed."""
    reference = next(
        (b for (series, shape), b in best.items() if series.is_baseline and shape == line.shape),
        None,
    )
    if reference is line:
        return Blank(IS_REFERENCE)
    if not line.done:
        return Blank(NO_RESULT)
    base = reference.of_seeds(column) if reference else {}
    paired = [value - base[seed] for seed, value in line.of_seeds(column).items() if seed in base]
    return spread(paired) or Blank(NO_REFERENCE)


def relative_speed(line: Line, lines: Iterable[Line]) -> float | Blank:
    """Tokens per second over Pre-LN's of the same shape, host, device, threads and suite."""
    own = _speeds([line])
    if not own:
        return Blank(NO_SPEED if line.done else NO_RESULT)
    base = _speeds(x for x in lines if x.series.is_baseline and x.shape == line.shape)
    ratios = [fmean(own[where]) / fmean(base[where]) for where in own if where in base]
    return fmean(ratios) if ratios else Blank(NO_SPEED_REFERENCE)


_WHERE = ("host", "device", "ranks", "threads", "suite")


def _speeds(lines: Iterable[Line]) -> dict[tuple[str, ...], list[float]]:
    speeds: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for record in (record for line in lines for record in line.done):
        if record["tokens_per_second"]:
            where = tuple(str(record[name]) for name in _WHERE)
            speeds[where].append(record["tokens_per_second"])
    return speeds


def status_text(records: Sequence[Record]) -> str:
    """`done`, or every status with its count, its step and its seed."""
    counts = Counter(record["status"] for record in records)
    if set(counts) == {"done"}:
        return "done"
    parts = [f"{counts['done']} of {len(records)} done"] if counts["done"] else []
    for record in sorted(records, key=lambda r: r["seed"]):
        if record["status"] != "done":
            step = record["diverged_step"] if record["status"] == "diverged" else record["step"]
            at = f" at step {step:,}" if step is not None else ""
            seed = f" (seed {record['seed']})" if len(records) > 1 else ""
            parts.append(f"{record['status']}{at}{seed}")
    return ", ".join(parts)
