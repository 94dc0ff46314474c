"""Panels as files and as markup: side by side, each on axes of its own."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from depthbench.report.axes import draw_panel
from depthbench.report.canvas import INK, RC, Form, Size, saved
from depthbench.report.panels import Mark, Panel
from depthbench.report.series import Look, Series


def draw(shown: Sequence[Panel], looks: Mapping[Series, Look], size: Size, form: Form) -> bytes:
    """The panels side by side, in rows where they are many, as SVG or PNG."""
    return draw_forms(shown, looks, size, (form,))[form]


def draw_forms(
    shown: Sequence[Panel], looks: Mapping[Series, Look], size: Size, forms: Sequence[Form]
) -> dict[Form, bytes]:
    """One drawing in several formats."""
    columns = min(len(shown), size.columns)
    named = list(dict.fromkeys(series for panel in shown for series in panel.series))
    kinds = {mark.kind: mark for panel in shown for mark in panel.marks}.values()
    key = 20 * math.ceil((len(named) + len(kinds)) / 5) if size.key else 0
    total, tall = size.width * columns, size.height * math.ceil(len(shown) / columns) + key
    with matplotlib.rc_context(RC | {"font.size": size.font}):
        figure = Figure(figsize=(total / 72, tall / 72))
        for place, panel in enumerate(shown):
            left, bottom, width, height = size.plot
            left += place % columns * size.width
            bottom += tall - (place // columns + 1) * size.height
            box = (left / total, bottom / tall, width / total, height / tall)
            draw_panel(figure.add_axes(box), panel, looks, size)
        if size.key:
            lines = [_sample(looks[series]) for series in named]
            lines += [_open(mark) for mark in kinds]
            figure.legend(handles=lines, loc="lower center", ncols=5, frameon=False)
        return {form: saved(figure, form, size.dpi) for form in forms}


def _open(mark: Mark) -> Line2D:
    style: dict[str, Any] = {"linestyle": "none", "marker": mark.marker, "fillstyle": "none"}
    return Line2D([], [], color=INK, label=mark.kind, markersize=6.5, **style)


def _sample(look: Look) -> Line2D:
    dashes = (0, look.dash) if look.dash else "solid"
    style: dict[str, Any] = {"linewidth": look.width, "linestyle": dashes, "marker": look.marker}
    return Line2D([], [], color=look.light, label=look.label, markersize=5.5, **style)
