"""One panel on its axes: lines, thin bars, marks of what diverged, names beside the lines."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from scipy.optimize import isotonic_regression

from depthbench.report.canvas import MUTED, RULE, Size
from depthbench.report.panels import Mark, Panel
from depthbench.report.series import Look, Series

LABEL_LENGTH = 20
SERIES_GID = "series:"


def draw_panel(axes: Axes, panel: Panel, looks: Mapping[Series, Look], size: Size) -> None:
    axes.set_facecolor("none")
    axes.set_xscale("log", base=panel.axis.base)
    axes.set_xlim(*x_limits(panel))
    axes.set_ylim(*panel.limits)
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.tick_params(length=0)
    style: dict[str, Any] = {"loc": "left", "fontsize": size.font + 1, "fontweight": "bold"}
    axes.set_title(panel.title, y=1.0, **style)  # matplotlib's own search for y is slow
    axes.set_ylabel(panel.unit)
    if panel.ticks:
        write = panel.ticks
        axes.yaxis.set_major_formatter(lambda value, _: write(value))
    axes.set_xlabel(panel.axis.name)
    ticks = x_ticks(panel, size)
    axes.set_xticks([x for x, _ in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xticklabels([text for _, text in ticks])
    _draw_levels(axes, panel, looks)
    for place, series in enumerate(panel.values):
        _draw_series(axes, panel, series, looks[series], gid_of(looks, series), place)
    for mark in panel.marks:
        _draw_mark(axes, panel, mark, looks[mark.series], gid_of(looks, mark.series))
    for place, (series, lost) in enumerate(panel.diverged.items()):
        cross: dict[str, Any] = {"color": looks[series].light, "gid": gid_of(looks, series)}
        cross |= {"linestyle": "none", "marker": "x", "markersize": 8, "markeredgewidth": 2}
        x = [at.x * 2 ** (-0.06 * place) for at in lost]
        axes.plot(x, [0.975] * len(x), transform=axes.get_xaxis_transform(), **cross)
    if size.labels:
        _label_ends(axes, panel, looks, size)


def gid_of(looks: Mapping[Series, Look], series: Series) -> str:
    return f"{SERIES_GID}{list(looks).index(series)}"


def x_limits(panel: Panel) -> tuple[float, float]:
    """From the first place to the last, with a margin."""
    first, last = panel.places[0].x, panel.places[-1].x
    low, high = (last, first) if panel.axis.falls else (first, last)
    margin = 2 ** (0.05 * math.log2(high / low) or 0.5)
    margin = max(margin, apart(panel) ** (len(panel.values) / 2 + 1))
    low, high = low / margin, high * margin
    return (high, low) if panel.axis.falls else (low, high)


def x_ticks(panel: Panel, size: Size) -> list[tuple[float, str]]:
    """A tick's label stands where it does not run into the one before or the last."""
    axis, ticks = panel.axis, panel.axis.ticks(panel.places)
    start, stop = (math.log2(x) for x in x_limits(panel))
    places = [size.plot[2] * (math.log2(x) - start) / (stop - start) for x, _ in ticks]
    room = axis.room * size.font
    labels: list[tuple[float, str]] = []
    free = -math.inf
    for (x, text), place in zip(ticks, places, strict=True):
        last = x == ticks[-1][0]
        fits = last or free <= place <= places[-1] - room
        labels.append((x, text if fits else ""))
        free = place + room if fits else free
    return labels


def _draw_levels(axes: Axes, panel: Panel, looks: Mapping[Series, Look]) -> None:
    """Horizontal rules and the frontier, under everything else."""
    for series, level in panel.levels:
        style: dict[str, Any] = {"color": MUTED}
        if series is not None:
            style = {"color": looks[series].light, "gid": gid_of(looks, series)}
        axes.axhline(level, linewidth=1.1, linestyle=(0, (1, 2)), zorder=1.5, **style)
    if panel.frontier:
        x, y = zip(*panel.frontier, strict=True)
        axes.plot(x, y, color=RULE, linewidth=9, solid_capstyle="round", zorder=1)


def _draw_mark(axes: Axes, panel: Panel, mark: Mark, look: Look, gid: str) -> None:
    low, high = panel.limits
    inside = low <= mark.value.mean <= high
    style: dict[str, Any] = {"color": look.light, "gid": gid, "linestyle": "none", "zorder": 4}
    style |= {"marker": mark.marker, "fillstyle": "none", "markersize": 7, "markeredgewidth": 1.5}
    if not inside:
        style |= {"marker": "^" if mark.value.mean > high else "v", "clip_on": False}
    axes.plot([mark.place.x], [min(max(mark.value.mean, low), high)], **style)


def _draw_series(
    axes: Axes,
    panel: Panel,
    series: Series,
    look: Look,
    gid: str,
    place: int,
) -> None:
    values = panel.values[series]
    shift = apart(panel) ** (place - (len(panel.values) - 1) / 2)
    shown = [p for p in panel.places if p in values or panel.axis.line == "gaps"]
    x = {at: at.x * shift for at in shown}
    means = [values[at].mean if at in values else math.nan for at in shown]  # nan: a gap
    style: dict[str, Any] = {"color": look.light, "gid": gid}
    dot: dict[str, Any] = {"marker": look.marker, "markersize": 6.5 if look.width > 2 else 5.5}
    dashes: Any = (0, look.dash) if look.dash else "solid"
    dashes = "none" if panel.axis.line == "none" else dashes
    line: dict[str, Any] = {"linewidth": look.width, "linestyle": dashes, "zorder": 3}
    axes.plot([*x.values()], means, **line, **dot, **style)
    bars = {at: panel.bars[series, at] for at in values if (series, at) in panel.bars}
    if bars:  # one line with gaps: a line for each bar would take most of the time
        across = [end for at in bars for end in (x[at], x[at], math.nan)]
        along = [end for low, high in bars.values() for end in (low, high, math.nan)]
        axes.plot(across, along, linewidth=1, alpha=0.6, **style)
    for at, value in values.items():
        if not panel.limits[0] <= value.mean <= panel.limits[1]:
            above = value.mean > panel.limits[1]
            edge: dict[str, Any] = {"marker": "^" if above else "v", "clip_on": False}
            transform = axes.get_xaxis_transform()
            axes.plot([x[at]], [float(above)], transform=transform, **edge, **style)


def apart(panel: Panel) -> float:
    """Factor between the places of two designs, so that bars do not cover each other."""
    if not panel.bars:
        return 1.0
    places = [math.log2(place.x) for place in panel.places]
    gap = min((abs(a - b) for a, b in pairwise(places)), default=1.0)
    return 2 ** min(0.04, 0.25 * gap / len(panel.values))


def _label_ends(axes: Axes, panel: Panel, looks: Mapping[Series, Look], size: Size) -> None:
    """The name of every line beside its last point."""
    low = panel.limits[0]
    for end in ends(panel, size):
        look = looks[end.series]
        style: dict[str, Any] = {"color": look.light, "gid": gid_of(looks, end.series)}
        start = axes.transAxes.inverted().transform(axes.transData.transform((end.x, low)))[0]
        axes.plot(
            [start + 0.012, 1.03],
            [end.height, end.label_height],
            transform=axes.transAxes,
            clip_on=False,
            linewidth=0.7,
            alpha=0.5,
            **style,
        )
        name = label_of(look)
        weight = "bold" if end.series.is_baseline else "normal"
        text = axes.text(
            1.04, end.label_height, name, transform=axes.transAxes, va="center", **style
        )
        text.set_fontweight(weight)
        text.set_fontsize(size.font - 0.5)


class End(NamedTuple):
    """Where a line ends and where its name stands, heights as shares of the plot."""

    series: Series
    x: float
    height: float
    label_height: float


def ends(panel: Panel, size: Size) -> list[End]:
    """Names moved apart so far that all are legible; none where there is no room for all."""
    low, high = panel.limits
    found = []
    for series, values in panel.values.items():
        last = min(values, key=lambda at: at.x if panel.axis.falls else -at.x)
        height = (min(max(values[last].mean, low), high) - low) / (high - low)
        found.append((height, last.x, series))
    found.sort(key=lambda end: end[0])
    gap = 1.2 * size.font / size.plot[3]
    if not found or gap * (len(found) - 1) > 1.0:
        return []
    steps = gap * np.arange(len(found))
    placed = isotonic_regression([height for height, _, _ in found] - steps).x
    heights = np.clip(placed, 0, 1 - steps[-1]) + steps
    return [End(s, x, h, float(y)) for (h, x, s), y in zip(found, heights, strict=True)]


def label_of(look: Look) -> str:
    """Its name, or the beginning of a long one."""
    name = look.label
    return name if len(name) <= LABEL_LENGTH else name[: LABEL_LENGTH - 1] + "…"
