"""Figures as markup: panels, charts and legends that follow the page's colours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from depthbench.report import canvas
from depthbench.report.depth import Chart, plot_chart
from depthbench.report.panel_plot import plot_panel
from depthbench.report.panels import Panel
from depthbench.report.plot import swatch
from depthbench.report.series import Look, Series
from depthbench.report.values import joined

Legend = list[tuple[str, list[tuple[int, Look, Markup]]]]


@dataclass(frozen=True)
class Figure:
    """One panel, drawn for a wide and for a narrow screen, or once for both."""

    wide: Markup
    compact: Markup | None
    caption: str


def figure(panel: Panel, looks: Mapping[Series, Look], text: str = "") -> Figure:
    """The panel in two sizes."""
    wide = plot_panel(panel, looks, canvas.WIDE)
    compact = plot_panel(panel, looks, canvas.COMPACT)
    return Figure(wide, compact, f"{text} {caption(panel, looks, bars=not text)}".strip())


def small(panel: Panel, looks: Mapping[Series, Look], text: str = "") -> Figure:
    """The panel in one size that fits a phone."""
    drawn = plot_panel(panel, looks, canvas.SMALL)
    return Figure(drawn, None, f"{text} {caption(panel, looks, bars=not text)}".strip())


def few(panels: Sequence[tuple[Panel, str]], looks: Mapping[Series, Look]) -> list[Figure]:
    """Panels with their texts: one or two in two sizes, more of them small."""
    draw = figure if len(panels) < 3 else small
    return [draw(panel, looks, text) for panel, text in panels]


def chart(drawn: Chart, looks: Mapping[Series, Look], text: str) -> Figure:
    """What a probe finds along the depth."""
    return Figure(plot_chart(drawn, looks), None, text)


def caption(panel: Panel, looks: Mapping[Series, Look], bars: bool = True) -> str:
    """What the bars are, unless said elsewhere, and what a reader could miss."""
    parts = []
    if bars:
        several = any(v.sd is not None for by in panel.values.values() for v in by.values())
        parts.append(f"Bars: {panel.reach}." if several else "One run a point.")
    if panel.measure == "difference":
        parts.append("Below the thick line a design is better than Pre-LN at that shape.")
    if panel.diverged:
        lost = [
            f"{looks[series].label} at {shape.label}"
            for series, shapes in panel.diverged.items()
            for shape in shapes
        ]
        parts.append(f"× along the top: diverged, {joined(lost)}.")
    if panel.outside:
        write = panel.ticks or "{:.4f}".format
        beyond = [
            f"{looks[series].label} at {shape.label} with {write(value)}"
            for series, shape, value in panel.outside
        ]
        parts.append(f"Outside the panel, marked at its edge: {joined(beyond)}.")
    return " ".join(parts)


def legend(shown: Iterable[Series], looks: Mapping[Series, Look]) -> Legend:
    """Swatch and name of every series that is shown, by family."""
    wanted = set(shown)
    families: Legend = []
    by_family: dict[str, list[tuple[int, Look, Markup]]] = {}
    for i, (series, look) in enumerate(looks.items()):
        if series in wanted:
            by_family.setdefault(look.family, []).append((i, look, swatch(i, look)))
    families += by_family.items()
    return families
