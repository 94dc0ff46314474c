"""What a panel shows: every mean, how far it may be off, what lies outside, and what diverged."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from depthbench.report.lines import Best, Line, ShapeKey, Spread, delta
from depthbench.report.places import ASPECT, Axis, Place
from depthbench.report.reading import shapes_of
from depthbench.report.series import Series
from depthbench.report.values import joined
from depthbench.statistics import Estimate

NATS = "nats per token"
_FAR = 0.75  # of the range so far, from its edge
Means = Mapping[Series, Mapping[Place, Spread]]
Estimates = Mapping[tuple[Series, ShapeKey], Estimate]
Ends = Mapping[tuple[Series, Place], tuple[float, float]]


@dataclass(frozen=True)
class Mark:
    """A point beside the lines, drawn open. `kind`: what it is, in words."""

    series: Series
    place: Place
    value: Spread
    kind: str
    marker: str


@dataclass
class Panel:
    """What one panel shows. `values`: mean and deviation by series and place, left to right.

    `bars`: where the thin bar of a point begins and ends, `reach`: what that is. `seeds`: the
    numbers behind a point. `ticks` writes the numbers of the y axis. `levels`: horizontal rules,
    each of a series or of none. `frontier`: places and values that a broad line joins.
    """

    measure: str
    title: str
    unit: str
    places: list[Place]
    values: Means
    bars: Ends
    diverged: Mapping[Series, list[Place]]
    reach: str = "sample deviation over seeds"
    ticks: Callable[[float], str] | None = None
    axis: Axis = ASPECT
    marks: Sequence[Mark] = ()
    levels: Sequence[tuple[Series | None, float]] = ()
    frontier: Sequence[tuple[float, float]] = ()
    limits: tuple[float, float] = (0.0, 1.0)
    seeds: Mapping[tuple[Series, Place], str] = field(default_factory=dict)
    outside: list[tuple[Series, Place, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limits = _limits(self)
        low, high = self.limits
        self.outside = [
            (series, place, mean)
            for series, place, mean in self._points()
            if not low <= mean <= high
        ]

    def _points(self) -> Iterator[tuple[Series, Place, float]]:
        for series, values in self.values.items():
            yield from ((series, place, value.mean) for place, value in values.items())
        yield from ((mark.series, mark.place, mark.value.mean) for mark in self.marks)

    @property
    def series(self) -> list[Series]:
        """Every one that is drawn."""
        marked = (mark.series for mark in self.marks)
        return list(dict.fromkeys([*self.values, *marked]))


def panels(best: Best, order: Sequence[Series], beyond: Estimates | None = None) -> list[Panel]:
    """The loss panel, and the difference panel where Pre-LN was run.

    Where `beyond` has intervals of the differences, these are the bars.
    """
    losses = panel("loss", "Validation loss", NATS, best, order, lambda line: line.loss)
    difference = difference_panel("Loss minus Pre-LN's at the same shape", best, order)
    intervals: dict[tuple[Series, Place], tuple[float, float]] = {
        (key[0], key[1]): (found.low, found.high)
        for key, found in (beyond or {}).items()
        if found.low is not None and found.high is not None
    }
    if intervals:
        difference = replace(difference, bars=intervals, reach="95 % interval")
    result = [losses, difference]
    return [shown for shown in result if len(shown.values) > (shown is difference)]


def panel(
    measure: str,
    title: str,
    unit: str,
    best: Best,
    order: Sequence[Series],
    value: Callable[[Line], Spread | str],
    *,
    bars: Callable[[Line], tuple[float, float] | None] | None = None,
    ticks: Callable[[float], str] | None = None,
) -> Panel:
    """`value` of every line; without `bars` these reach one deviation to both sides."""
    values: dict[Series, dict[Place, Spread]] = {}
    ends: dict[tuple[Series, Place], tuple[float, float]] = {}
    diverged: dict[Series, list[Place]] = {}
    seeds: dict[tuple[Series, Place], str] = {}
    for series in order:
        own = {shape: line for (owner, shape), line in best.items() if owner == series}
        for shape, line in own.items():
            found = value(line)
            if isinstance(found, Spread):
                values.setdefault(series, {})[shape] = found
                seeds[series, shape] = joined(str(seed) for seed in line.by_seed)
                reach = bars(line) if bars else deviation(found)
                ends |= {(series, shape): reach} if reach else {}
            if line.diverged and not line.done:
                diverged.setdefault(series, []).append(shape)
    words = "95 % interval" if bars else "sample deviation over seeds"
    places: list[Place] = [*shapes_of(best)]
    drawn = Panel(measure, title, unit, places, values, ends, diverged, words, ticks)
    return replace(drawn, seeds=seeds)


def deviation(value: Spread) -> tuple[float, float] | None:
    """One deviation to both sides."""
    return None if value.sd is None else (value.mean - value.sd, value.mean + value.sd)


def difference_panel(
    title: str, best: Best, order: Sequence[Series], column: str = "loss"
) -> Panel:
    """A column minus Pre-LN's at the same shape; Pre-LN's own line is at zero."""

    def difference(line: Line) -> Spread | str:
        if line.series.is_baseline:
            own = line.mean(column)
            return own if isinstance(own, str) else Spread(0.0, None, own.n)
        return delta(line, best, column)

    return panel("difference", title, NATS, best, order, difference)


def _limits(panel: Panel) -> tuple[float, float]:
    """Limits that hold every value but far outliers, which would flatten all other lines."""
    spreads = {s: list(values.values()) for s, values in panel.values.items()}
    means = [v.mean for values in spreads.values() for v in values]
    means += [mark.value.mean for mark in panel.marks]
    if not means:
        return 0.0, 1.0
    shown = [v.mean for s in spreads if s.is_baseline for v in spreads[s]]
    shown += [level for _, level in panel.levels]
    if len(means) < panel.axis.least_cut:
        shown += means
    lower, upper = np.quantile(means, (0.25, 0.75))
    low, high = min([lower, *shown]), max([upper, *shown])
    for mean in sorted(means, key=lambda mean: max(low - mean, mean - high)):
        if max(low - mean, mean - high) <= _FAR * (high - low):
            low, high = min(low, mean), max(high, mean)
    kept = [
        end
        for series, values in panel.values.items()
        for shape, value in values.items()
        if low <= value.mean <= high
        for end in panel.bars.get((series, shape), (value.mean, value.mean))
    ]
    kept += [m.value.mean for m in panel.marks if low <= m.value.mean <= high]
    kept += [level for _, level in panel.levels]
    low, high = min(kept), max(kept)
    margin = 0.06 * (high - low) or 0.01 * (abs(high) or 1.0)
    return low - margin, high + 1.6 * margin  # diverged cells are marked along the top
