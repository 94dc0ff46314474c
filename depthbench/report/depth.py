"""What probes find along the depth: one small chart for each value, one line a design."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, isnan

import numpy as np
from markupsafe import Markup

from depthbench.report.canvas import Size
from depthbench.report.cells import Array, Probed
from depthbench.report.plot import (
    Frame,
    across_at,
    axes,
    dot,
    in_digits,
    line,
    round_values,
    series,
    svg,
)
from depthbench.report.probes import Probes
from depthbench.report.series import Look, Series
from depthbench.report.values import number

PLACE = "place in depth"
SIZE = Size(350, 200, 9.5, labels=False)


@dataclass(frozen=True)
class Chart:
    """One value of one probe. `threshold` is drawn as a dashed rule."""

    probe: str
    title: str
    unit: str
    place: str
    lines: Mapping[Series, Array]
    threshold: float | None


def depth_charts(probes: Probes) -> list[Chart]:
    """Every value that is a list over the depth, of the cells that stand for their designs."""
    charts = []
    for name in probes.names:
        kinds: dict[str, dict[Series, Array]] = {}
        places: dict[str, set[str]] = {}
        holders: dict[str, Probed] = {}
        for chosen in probes.answered:
            probed = chosen.cell.probes.get(name) if chosen.cell else None
            for kind, values in probed.values.items() if probed else ():
                if probed and values.ndim == 1:
                    holders.setdefault(kind, probed)
                    kinds.setdefault(kind, {})[chosen.series] = values
                    places.setdefault(kind, set()).add(_place(len(values), probed))
        for kind, lines in kinds.items():
            holder = holders[kind]
            place = places[kind].pop() if len(places[kind]) == 1 else PLACE
            limit = holder.document["thresholds"].get("dead") if len(kinds) == 1 else None
            title = f"{holder.title}: {kind.replace('_', ' ')}"
            charts.append(Chart(name, title, holder.document["unit"], place, lines, limit))
    return charts


def _place(length: int, probed: Probed) -> str:
    """What the places of a list are, as the document's axes name them.

    Where these are the axes of pairs, a list that is one shorter runs over steps between them.
    """
    axes = probed.document["axes"] or ("", PLACE)
    sides = {len(values) for values in probed.values.values() if values.ndim == 2}
    if not sides or length in sides:
        return str(axes[1])
    return f"step from one {axes[1]} to the next" if length + 1 in sides else PLACE


def plot_chart(chart: Chart, looks: Mapping[Series, Look]) -> Markup:
    """The chart as SVG of the page."""
    known = np.concatenate([values[np.isfinite(values)] for values in chart.lines.values()])
    known = np.append(known, [] if chart.threshold is None else [chart.threshold])
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    margin = 0.06 * (high - low) or 0.01 * (abs(high) or 1.0)
    last = max(len(values) for values in chart.lines.values()) - 1
    frame = Frame(
        SIZE, (-0.03 * last - 0.1, 1.03 * last + 0.1), (low - margin, high + margin), log=False
    )
    heights = round_values(*frame.y)
    places = [x for x in round_values(0, last) if x.is_integer()] or [0.0]
    parts = [
        axes(
            frame,
            chart.title,
            "",
            chart.place,
            [(x, f"{x:.0f}") for x in places],
            [*zip(heights, in_digits(heights), strict=True)],
        )
    ]
    if chart.threshold is not None:
        parts.append(across_at(frame, chart.threshold, "level"))
    order = {owner: index for index, owner in enumerate(looks)}
    parts += [
        series(order[owner], _line(values, looks[owner], frame, chart))
        for owner, values in chart.lines.items()
    ]
    return svg(SIZE, f"{chart.title} over the depth", parts)


def _line(values: Array, look: Look, frame: Frame, chart: Chart) -> Iterator[str]:
    found = values.tolist()
    yield line([(frame.across(x), frame.down(y)) for x, y in enumerate(found)], look)
    every = max(1, len(found) // 8)
    for x, y in enumerate(found):
        if isfinite(y) and x % every == 0:
            tip = f"{look.label}\n{chart.place} {x}\n{number(y, 4)} {chart.unit}"
            yield dot(frame.across(x), frame.down(y), look.marker, 2.4, tip)


def spark(values: Array) -> list[str]:
    """Points of polylines in a box of 100 × 24, one for each stretch without a gap."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    x = np.linspace(1, 99, len(values)) if len(values) > 1 else np.array([50.0])
    y = 22 - 20 * (values - low) / ((high - low) or 1.0)
    stretches: list[list[str]] = [[]]
    for across, up in zip(x.tolist(), y.tolist(), strict=True):
        if isnan(up):
            stretches.append([])
        else:
            stretches[-1].append(f"{across:.1f},{up:.1f}")
    return [" ".join(points) for points in stretches if points]
