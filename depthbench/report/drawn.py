"""Figures as markup: panels, charts and legends that follow the page's colours."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from markupsafe import Markup

from depthbench.report import canvas, figures
from depthbench.report.depth import Chart, draw_chart
from depthbench.report.panels import Panel
from depthbench.report.series import Look, Series
from depthbench.report.svg import inline
from depthbench.report.values import joined

Legend = list[tuple[str, list[tuple[int, Look, Markup]]]]


@dataclass(frozen=True)
class Figure:
    """One panel, drawn for a wide and for a narrow screen, or once for both."""

    wide: Markup
    compact: Markup | None
    caption: str


def _colours(looks: Mapping[Series, Look]) -> dict[str, str]:
    scheme = {canvas.INK: "var(--ink)", canvas.MUTED: "var(--muted)", canvas.RULE: "var(--rule)"}
    return scheme | {look.light: f"var(--s{i})" for i, look in enumerate(looks.values())}


def _drawn(panel: Panel, looks: Mapping[Series, Look], size: canvas.Size, prefix: str) -> Markup:
    source = figures.draw([panel], looks, size, "svg").decode()
    title = f"{panel.title} against {panel.axis.against}; the values are in the tables"
    return Markup(inline(source, prefix, title, _colours(looks)))


def figure(panel: Panel, looks: Mapping[Series, Look], prefix: str, text: str = "") -> Figure:
    """The panel in two sizes."""
    wide = _drawn(panel, looks, canvas.WIDE, f"{prefix}w-")
    compact = _drawn(panel, looks, canvas.COMPACT, f"{prefix}c-")
    return Figure(wide, compact, f"{text} {caption(panel, looks, bars=not text)}".strip())


def small(panel: Panel, looks: Mapping[Series, Look], prefix: str, text: str = "") -> Figure:
    """The panel in one size that fits a phone."""
    drawn = _drawn(panel, looks, canvas.SMALL, prefix)
    return Figure(drawn, None, f"{text} {caption(panel, looks, bars=not text)}".strip())


def few(
    panels: Sequence[tuple[Panel, str]], looks: Mapping[Series, Look], prefix: str
) -> list[Figure]:
    """Panels with their texts: one or two in two sizes, more of them small."""
    draw = figure if len(panels) < 3 else small
    return [draw(panel, looks, f"{prefix}{i}-", text) for i, (panel, text) in enumerate(panels)]


def chart(drawn: Chart, looks: Mapping[Series, Look], prefix: str, text: str) -> Figure:
    """What a probe finds along the depth."""
    source = draw_chart(drawn, looks, "svg").decode()
    title = f"{drawn.title} over the depth"
    return Figure(Markup(inline(source, prefix, title, _colours(looks))), None, text)


def caption(panel: Panel, looks: Mapping[Series, Look], bars: bool = True) -> str:
    """What the bars are, unless said elsewhere, and what a reader could miss."""
    parts = []
    if bars:
        several = any(v.sd is not None for by in panel.values.values() for v in by.values())
        parts.append("Bars: sample deviation over seeds." if several else "One run a point.")
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


def legend(shown: Iterable[Series], looks: Mapping[Series, Look], prefix: str) -> Legend:
    """Swatch and name of every series that is shown, by family."""
    wanted = set(shown)
    families: Legend = []
    by_family: dict[str, list[tuple[int, Look, Markup]]] = {}
    for i, (series, look) in enumerate(looks.items()):
        if series in wanted:
            drawn = Markup(inline(_swatch(look), f"{prefix}k{i}-", look.label, _colours(looks)))
            by_family.setdefault(look.family, []).append((i, look, drawn))
    families += by_family.items()
    return families


@cache
def _swatch(look: Look) -> str:
    return figures.swatch(look).decode()
