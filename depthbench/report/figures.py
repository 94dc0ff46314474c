"""Loss against aspect ratio, and loss minus Pre-LN's, from shallow and wide to deep and narrow."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from depthbench.report.lines import ShapeKey, Spread
from depthbench.report.panels import TITLES, Panel
from depthbench.report.series import Look, Series
from depthbench.report.svg import SERIES_GID

INK, MUTED, RULE = "#1a1c20", "#666b73", "#d8dbe0"
_RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "depthbench",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "text.parse_math": False,  # a design may be named with a dollar sign
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_LABEL_LENGTH = 20


@dataclass(frozen=True)
class Size:
    """Width and height in CSS pixels, font size, and whether lines are named at their right end."""

    width: int
    height: int
    font: float
    labels: bool

    @property
    def plot(self) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of the plot itself."""
        left, bottom = 5.4 * self.font, 5 * self.font
        right = 138 if self.labels else 12
        return left, bottom, self.width - left - right, self.height - bottom - 30


WIDE = Size(640, 460, 11.5, labels=True)
COMPACT = Size(350, 330, 10.0, labels=False)


def draw(
    shown: Sequence[Panel], looks: Mapping[Series, Look], size: Size, form: Literal["svg", "png"]
) -> bytes:
    """The panels side by side as SVG or PNG."""
    total = size.width * len(shown)
    with matplotlib.rc_context(_RC | {"font.size": size.font}):
        figure = Figure(figsize=(total / 72, size.height / 72))
        for place, panel in enumerate(shown):
            left, bottom, width, height = size.plot
            left += place * size.width
            box = (left / total, bottom / size.height, width / total, height / size.height)
            _draw_panel(figure.add_axes(box), panel, looks, size)
        file = BytesIO()
        metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
        ground = "none" if form == "svg" else "white"
        figure.savefig(file, format=form, dpi=150, metadata=metadata, facecolor=ground)
    return file.getvalue()


def swatch(look: Look) -> bytes:
    """A short piece of the line with its marker, as SVG."""
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(34 / 72, 12 / 72))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, 34)
        axes.set_ylim(0, 12)
        dashes = (0, look.dash) if look.dash else "solid"
        axes.plot([1, 33], [6, 6], color=look.light, linewidth=look.width, linestyle=dashes)
        axes.plot([17], [6], color=look.light, marker=look.marker, markersize=6)
        file = BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None}, facecolor="none")
    return file.getvalue()


def _draw_panel(axes: Axes, panel: Panel, looks: Mapping[Series, Look], size: Size) -> None:
    axes.set_facecolor("none")
    axes.set_xscale("log", base=2)
    axes.set_xlim(*_x_limits(panel.shapes))
    axes.set_ylim(*panel.limits)
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.tick_params(length=0)
    axes.set_title(TITLES[panel.measure], loc="left", fontsize=size.font + 1, fontweight="bold")
    axes.set_ylabel("nats per token")
    axes.set_xlabel("d_model / layers, log scale: shallow, wide → deep, narrow")
    _shape_ticks(axes, panel.shapes, size)
    for place, (series, values) in enumerate(panel.values.items()):
        _draw_series(axes, panel, values, looks[series], _gid(looks, series), place)
    for place, (series, lost) in enumerate(panel.diverged.items()):
        style: dict[str, Any] = {"color": looks[series].light, "gid": _gid(looks, series)}
        style |= {"linestyle": "none", "marker": "x", "markersize": 8, "markeredgewidth": 2}
        x = [shape.aspect_ratio * 2 ** (-0.06 * place) for shape in lost]
        axes.plot(x, [0.975] * len(x), transform=axes.get_xaxis_transform(), **style)
    if size.labels:
        _label_ends(axes, panel, looks, size)


def _gid(looks: Mapping[Series, Look], series: Series) -> str:
    return f"{SERIES_GID}{list(looks).index(series)}"


def _x_limits(shapes: Sequence[ShapeKey]) -> tuple[float, float]:
    """Descending, so that depth grows to the right."""
    wide, deep = shapes[0].aspect_ratio, shapes[-1].aspect_ratio
    margin = 2 ** (0.05 * math.log2(wide / deep) or 0.5)
    return wide * margin, deep / margin


def _shape_ticks(axes: Axes, shapes: Sequence[ShapeKey], size: Size) -> None:
    """One tick a shape; its label where it does not run into the one before or the last."""
    axes.set_xticks([shape.aspect_ratio for shape in shapes])
    axes.set_xticks([], minor=True)
    start, stop = (math.log2(x) for x in axes.get_xlim())
    places = [size.plot[2] * (math.log2(s.aspect_ratio) - start) / (stop - start) for s in shapes]
    room = 5.4 * size.font
    labels: list[str] = []
    free = -math.inf
    for shape, place in zip(shapes, places, strict=True):
        last = shape is shapes[-1]
        fits = last or free <= place <= places[-1] - room
        labels.append(f"{shape.label}\n{shape.aspect_ratio:.3g}" if fits else "")
        free = place + room if fits else free
    axes.set_xticklabels(labels)


def _draw_series(
    axes: Axes,
    panel: Panel,
    values: Mapping[ShapeKey, Spread],
    look: Look,
    gid: str,
    place: int,
) -> None:
    several = any(v.sd is not None for v in values.values())
    shift = 2 ** (0.012 * (place - len(panel.values) / 2)) if several else 1.0
    x = {shape: shape.aspect_ratio * shift for shape in panel.shapes}
    means = [values[s].mean if s in values else math.nan for s in panel.shapes]  # nan: a gap
    style: dict[str, Any] = {"color": look.light, "gid": gid}
    dot: dict[str, Any] = {"marker": look.marker, "markersize": 6.5 if look.width > 2 else 5.5}
    dashes = (0, look.dash) if look.dash else "solid"
    axes.plot([*x.values()], means, linewidth=look.width, linestyle=dashes, zorder=3, **style)
    axes.plot([*x.values()], means, linestyle="none", zorder=4, **dot, **style)
    axes.plot([*x.values()], means, linewidth=11, alpha=0, gid=gid)  # what a pointer can hit
    for shape, value in values.items():
        if value.sd is not None:
            ends = [value.mean - value.sd, value.mean + value.sd]
            axes.plot([x[shape]] * 2, ends, linewidth=1, marker="_", markersize=5, **style)
        if not panel.limits[0] <= value.mean <= panel.limits[1]:
            above = value.mean > panel.limits[1]
            edge: dict[str, Any] = {"marker": "^" if above else "v", "clip_on": False}
            transform = axes.get_xaxis_transform()
            axes.plot([x[shape]], [float(above)], transform=transform, **edge, **style)


def _label_ends(axes: Axes, panel: Panel, looks: Mapping[Series, Look], size: Size) -> None:
    """The name of every line beside its last point, moved apart so far that all are legible."""
    low, high = panel.limits
    ends = []
    for series, values in panel.values.items():
        last = min(values, key=lambda shape: shape.aspect_ratio)
        height = (min(max(values[last].mean, low), high) - low) / (high - low)
        ends.append((height, last.aspect_ratio, series))
    ends.sort(key=lambda end: end[0])
    gap = 1.2 * size.font / size.plot[3]
    if gap * (len(ends) - 1) > 1.0:
        return
    steps = gap * np.arange(len(ends))
    placed = isotonic_regression([height for height, _, _ in ends] - steps).x
    for (height, x, series), y in zip(ends, np.clip(placed, 0, 1 - steps[-1]) + steps, strict=True):
        look = looks[series]
        style: dict[str, Any] = {"color": look.light, "gid": _gid(looks, series)}
        start = axes.transAxes.inverted().transform(axes.transData.transform((x, low)))[0]
        axes.plot(
            [start + 0.012, 1.03],
            [height, y],
            transform=axes.transAxes,
            clip_on=False,
            linewidth=0.7,
            alpha=0.5,
            **style,
        )
        name = look.label
        if len(name) > _LABEL_LENGTH:
            name = name[: _LABEL_LENGTH - 1] + "…"
        weight = "bold" if series.is_baseline else "normal"
        text = axes.text(1.04, y, name, transform=axes.transAxes, va="center", **style)
        text.set_fontweight(weight)
        text.set_fontsize(size.font - 0.5)
