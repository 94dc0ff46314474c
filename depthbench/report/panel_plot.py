"""A panel as SVG of the page: lines, bands of seeds, thin bars, marks, names beside the lines."""

import math
from collections.abc import Iterator, Mapping

from markupsafe import Markup

from depthbench.report.axes import End, apart, ends, label_of, x_limits, x_ticks
from depthbench.report.canvas import Size
from depthbench.report.panels import Panel
from depthbench.report.places import Place
from depthbench.report.plot import (
    Frame,
    across_at,
    axes,
    band,
    bars,
    dot,
    in_digits,
    line,
    round_values,
    series,
    svg,
    text,
)
from depthbench.report.series import Look, Series

_RADIUS = 3.6


def plot_panel(panel: Panel, looks: Mapping[Series, Look], size: Size) -> Markup:
    """The panel in one size. Every point has what it is as a text."""
    frame = Frame(size, x_limits(panel), panel.limits)
    order = {owner: index for index, owner in enumerate(looks)}
    heights = round_values(*panel.limits)
    words = [*map(panel.ticks, heights)] if panel.ticks else in_digits(heights)
    labels = {end.series: end for end in ends(panel, size)} if size.labels else {}
    parts = [
        axes(
            frame,
            panel.title,
            panel.unit,
            panel.axis.name,
            x_ticks(panel, size),
            [*zip(heights, words, strict=True)],
        )
    ]
    if panel.frontier:
        drawn = [(frame.across(x), frame.down(y)) for x, y in panel.frontier]
        points = "L".join(f"{x:.1f} {y:.1f}" for x, y in drawn)
        parts.append(f'<path class="frontier" d="M{points}"/>')
    for owner, level in panel.levels:
        rule = across_at(frame, level, "level")
        parts.append(rule if owner is None else series(order[owner], [rule]))
    shown = list(dict.fromkeys([*panel.series, *panel.diverged]))
    for owner in shown:
        drawn_parts = _series(panel, owner, looks[owner], frame, labels.get(owner))
        parts.append(series(order[owner], drawn_parts))
    title = f"{panel.title} against {panel.axis.against}; the values are in the tables"
    return svg(size, title, parts)


def _series(
    panel: Panel, owner: Series, look: Look, frame: Frame, end: End | None
) -> Iterator[str]:
    values = panel.values.get(owner, {})
    place = list(panel.values).index(owner) if owner in panel.values else 0
    shift = apart(panel) ** (place - (len(panel.values) - 1) / 2)
    kept = [p for p in panel.places if p in values or panel.axis.line == "gaps"]
    across = {at: frame.across(at.x * shift) for at in kept}
    low, high = panel.limits
    reach = {at: panel.bars[owner, at] for at in values if (owner, at) in panel.bars}
    ends_of = {
        at: (frame.down(max(a, low)), frame.down(min(b, high))) for at, (a, b) in reach.items()
    }
    if len(reach) > 1 and panel.axis.line != "none":
        below, above = (
            [(across[at], ends_of[at][side]) for at in kept if at in reach] for side in (0, 1)
        )
        yield band(below, above)
    if panel.axis.line != "none":
        means = [
            (across[at], frame.down(values[at].mean) if at in values else math.nan) for at in kept
        ]
        yield line(_inside(means, frame), look)
    if reach:
        yield bars((across[at], *ends_of[at]) for at in reach)
    radius = _RADIUS if look.width < 2 else 1.2 * _RADIUS
    for at, value in values.items():
        tip = _tip(panel, owner, look, at)
        if low <= value.mean <= high:
            yield dot(across[at], frame.down(value.mean), look.marker, radius, tip)
        else:
            y, shape = (frame.top, "^") if value.mean > high else (frame.bottom, "v")
            yield dot(across[at], y, shape, radius, tip)
    yield from _marks(panel, owner, look, frame)
    number = list(panel.diverged).index(owner) if owner in panel.diverged else 0
    for at in panel.diverged.get(owner, ()):
        x = frame.across(at.x * 2 ** (-0.06 * number))
        tip = f"{look.label}\n{at.label}\ndiverged"
        yield dot(x, frame.top + 0.025 * frame.size.plot[3], "x", 4, tip, "point open")
    if end:
        yield _name(end, look, frame)


def _inside(points: list[tuple[float, float]], frame: Frame) -> list[tuple[float, float]]:
    """What lies outside the plot ends at its edge."""
    return [(x, y if math.isnan(y) else min(max(y, frame.top), frame.bottom)) for x, y in points]


def _marks(panel: Panel, owner: Series, look: Look, frame: Frame) -> Iterator[str]:
    low, high = panel.limits
    for mark in panel.marks:
        if mark.series == owner:
            shape, value = mark.marker, mark.value.mean
            if not low <= value <= high:
                shape = "^" if value > high else "v"
            y = frame.down(min(max(value, low), high))
            words = (
                look.label,
                mark.place.label,
                f"{_written(panel, value)} {panel.unit}",
                mark.kind,
            )
            tip = "\n".join(words)
            yield dot(frame.across(mark.place.x), y, shape, 6, tip, "point open")


def _name(end: End, look: Look, frame: Frame) -> str:
    x, font = frame.right, frame.size.font
    height = frame.size.plot[3]
    start, stop = frame.bottom - end.height * height, frame.bottom - end.label_height * height
    path = f"M{frame.across(end.x) + 6:.1f} {start:.1f}L{x + 12:.1f} {stop:.1f}"
    lead = f'<path class="lead" d="{path}"/>'
    kind = "name strong" if end.series.is_baseline else "name"
    return lead + text(x + 16, stop + 0.35 * font, label_of(look), kind)


def _written(panel: Panel, value: float) -> str:
    return panel.ticks(value) if panel.ticks else in_digits([round(value, 4)])[0]


def _tip(panel: Panel, owner: Series, look: Look, at: Place) -> str:
    value = panel.values[owner][at]
    words = [look.label, at.label.replace("\n", " "), f"{_written(panel, value.mean)} {panel.unit}"]
    if (owner, at) in panel.bars:
        low, high = (_written(panel, end) for end in panel.bars[owner, at])
        words.append(f"{low} to {high}: {panel.reach}")
    seeds = panel.seeds.get((owner, at))
    if seeds:
        words.append(f"seed {seeds}" if value.n == 1 else f"seeds {seeds}")
    elif value.n:
        words.append(f"{value.n} {'run' if value.n == 1 else 'runs'}")
    return "\n".join(words)
