"""What the two panels show: every mean, what lies outside the limits, and what diverged."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from depthbench.report.lines import Best, Line, ShapeKey, Spread, delta
from depthbench.report.reading import shapes_of
from depthbench.report.series import Series

Measure = Literal["loss", "difference"]
TITLES: dict[Measure, str] = {
    "loss": "Validation loss",
    "difference": "Loss minus Pre-LN's at the same shape",
}

_FAR = 0.75  # of the range so far, from its edge


@dataclass
class Panel:
    """What one panel shows. `values`: mean and deviation by series and shape."""

    measure: Measure
    shapes: list[ShapeKey]
    values: dict[Series, dict[ShapeKey, Spread]]
    diverged: dict[Series, list[ShapeKey]]
    limits: tuple[float, float] = (0.0, 1.0)
    outside: list[tuple[Series, ShapeKey, float]] = field(default_factory=list)


def panels(best: Best, order: Sequence[Series]) -> list[Panel]:
    """The loss panel, and the difference panel where Pre-LN was run."""
    result = [_panel("loss", best, order), _panel("difference", best, order)]
    return [panel for panel in result if len(panel.values) > (panel.measure == "difference")]


def _panel(measure: Measure, best: Best, order: Sequence[Series]) -> Panel:
    panel = Panel(measure, shapes_of(best), {}, {})
    for series in order:
        lines = {shape: line for (owner, shape), line in best.items() if owner == series}
        values = {shape: _value(measure, line, best) for shape, line in lines.items()}
        found = {shape: v for shape, v in values.items() if v is not None}
        if found:
            panel.values[series] = found
        lost = [shape for shape, line in lines.items() if line.diverged and not line.done]
        if lost:
            panel.diverged[series] = lost
    panel.limits = _limits(panel)
    low, high = panel.limits
    panel.outside = [
        (series, shape, value.mean)
        for series, values in panel.values.items()
        for shape, value in values.items()
        if not low <= value.mean <= high
    ]
    return panel


def _value(measure: Measure, line: Line, best: Best) -> Spread | None:
    if measure == "difference" and line.series.is_baseline:
        return Spread(0.0, None, len(line.done)) if line.done else None
    value = line.loss if measure == "loss" else delta(line, best)
    return value if isinstance(value, Spread) else None


def _limits(panel: Panel) -> tuple[float, float]:
    """Limits that hold every value but far outliers, which would flatten all other lines."""
    spreads = {s: list(values.values()) for s, values in panel.values.items()}
    means = [v.mean for values in spreads.values() for v in values]
    if not means:
        return 0.0, 1.0
    lower, upper = np.quantile(means, (0.25, 0.75))
    low = min([lower, *(v.mean for s in spreads if s.is_baseline for v in spreads[s])])
    high = max([upper, *(v.mean for s in spreads if s.is_baseline for v in spreads[s])])
    for mean in sorted(means, key=lambda mean: max(low - mean, mean - high)):
        if max(low - mean, mean - high) <= _FAR * (high - low):
            low, high = min(low, mean), max(high, mean)
    kept = [v for values in spreads.values() for v in values if low <= v.mean <= high]
    low = min(v.mean - (v.sd or 0.0) for v in kept)
    high = max(v.mean + (v.sd or 0.0) for v in kept)
    margin = 0.06 * (high - low) or 0.01
    return low - margin, high + 1.6 * margin  # diverged cells are marked along the top
