"""What probes find along the depth: one small chart for each value, one line a design."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from depthbench.report.axes import gid_of
from depthbench.report.canvas import RC, RULE, Form, saved
from depthbench.report.cells import Array, Probed
from depthbench.report.probes import Chosen, Probes
from depthbench.report.series import Look, Series

WIDTH, HEIGHT, FONT = 350, 200, 9.5


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
                    places.setdefault(kind, set()).add(_place(len(values), chosen))
        for kind, lines in kinds.items():
            holder = holders[kind]
            place = places[kind].pop() if len(places[kind]) == 1 else "place in depth"
            limit = holder.document["thresholds"].get("dead") if len(kinds) == 1 else None
            title = f"{holder.title}: {kind.replace('_', ' ')}"
            charts.append(Chart(name, title, holder.document["unit"], place, lines, limit))
    return charts


def _place(length: int, chosen: Chosen) -> str:
    num, layers = chosen.num_blocks, chosen.line.shape.layers
    known = {layers: "block of the model"} if num > layers else {}
    known |= {num: "block", num + 1: "state, 0 before the first block", 2 * num: "sublayer"}
    return known.get(length, "place in depth")


def draw_chart(chart: Chart, looks: Mapping[Series, Look], form: Form) -> bytes:
    """The chart as a file."""
    with matplotlib.rc_context(RC | {"font.size": FONT}):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        box = (0.13, 0.2, 0.84, 0.66)
        axes = figure.add_axes(box)
        axes.set_facecolor("none")
        axes.grid(axis="y", color=RULE, linewidth=0.7)
        axes.tick_params(length=0)
        axes.set_title(chart.title, loc="left", y=1.0, fontsize=FONT + 0.5, fontweight="bold")
        axes.set_xlabel(chart.place)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        for series, values in chart.lines.items():
            look = looks[series]
            style: dict[str, Any] = {"color": look.light, "gid": gid_of(looks, series)}
            dashes = (0, look.dash) if look.dash else "solid"
            x = np.arange(len(values))
            style |= {"marker": look.marker, "markersize": 4, "linestyle": dashes}
            every = max(1, len(values) // 8)
            axes.plot(x, values, linewidth=0.8 * look.width, markevery=every, **style)
        if chart.threshold is not None:
            axes.axhline(chart.threshold, color=RULE, linewidth=1.5, linestyle=(0, (2, 2)))
        return saved(figure, form)


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
