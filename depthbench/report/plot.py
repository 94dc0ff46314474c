"""SVG for the page: small, in the page's colours, with a text for every point.

Matplotlib draws the figures that are files. A page has dozens of charts whose points answer to a
pointer and to keys, which its SVG does not carry, and drawing them twice took half of the time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import cos, isfinite, log2, pi, sin

from markupsafe import Markup, escape
from matplotlib.ticker import MaxNLocator

from depthbench.report.canvas import Size
from depthbench.report.series import Look
from depthbench.report.values import MINUS

Point = tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """Where values stand in the picture. `x`: its ends, left and right; `y`: below and above."""

    size: Size
    x: tuple[float, float]
    y: tuple[float, float]
    log: bool = True

    def across(self, x: float) -> float:
        """Pixels from the left."""
        left, _, width, _ = self.size.plot
        start, stop = self.x
        if self.log:
            x, start, stop = log2(x), log2(start), log2(stop)
        return left + width * (x - start) / (stop - start)

    def down(self, y: float) -> float:
        """Pixels from the top."""
        low, high = self.y
        return self.bottom - self.size.plot[3] * (y - low) / (high - low)

    @property
    def bottom(self) -> float:
        return self.size.height - self.size.plot[1]

    @property
    def top(self) -> float:
        return self.bottom - self.size.plot[3]

    @property
    def right(self) -> float:
        return self.size.plot[0] + self.size.plot[2]


def svg(size: Size, title: str, parts: Iterable[str]) -> Markup:
    """The picture. Its points are reached with the arrow keys once it has the focus."""
    return Markup(
        f'<svg class="plot" viewBox="0 0 {size.width} {size.height}" role="group" '
        f'aria-label="{escape(title)}" font-size="{size.font}">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, words: str, kind: str, **attributes: str) -> str:
    """Lines of text at one place."""
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    first, *rest = words.split("\n")
    lines = str(escape(first))
    for line in rest:
        lines += f'<tspan x="{x:.1f}" dy="1.15em">{escape(line)}</tspan>'
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{more}>{lines}</text>'


def axes(
    frame: Frame,
    title: str,
    unit: str,
    under: str,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
) -> str:
    """Rules, numbers and names."""
    font, left = frame.size.font, frame.size.plot[0]
    rules = "".join(f"M{left:.1f} {frame.down(y):.1f}H{frame.right:.1f}" for y, _ in y_ticks)
    marks = f"M{left:.1f} {frame.top:.1f}V{frame.bottom:.1f}H{frame.right:.1f}"
    middle = (frame.top + frame.bottom) / 2
    found = [f'<path class="rule" d="{rules}"/><path class="rule" d="{marks}"/>']
    found += [
        text(left - 5, frame.down(y) + 0.35 * font, words, "tick end") for y, words in y_ticks
    ]
    found += [
        text(frame.across(x), frame.bottom + 1.35 * font, words, "tick middle")
        for x, words in x_ticks
        if words
    ]
    found.append(text(left, frame.top - 9, title, "title"))
    found.append(text((left + frame.right) / 2, frame.size.height - 4, under, "tick middle"))
    turn = f"rotate(-90 {font:.1f} {middle:.1f})"
    found.append(text(font, middle, unit, "tick middle", transform=turn))
    return "".join(found)


def round_values(low: float, high: float, num: int = 6) -> list[float]:
    """Round numbers from `low` to `high`."""
    found = MaxNLocator(num, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [float(value) for value in found if low <= value <= high]


def in_digits(values: Sequence[float]) -> list[str]:
    """All with the digits that tell them apart."""
    for digits in range(7):
        texts = [f"{value:.{digits}f}" for value in values]
        if all(abs(float(t) - v) < 1e-9 for t, v in zip(texts, values, strict=True)):
            break
    else:
        texts = [f"{value:.3g}" for value in values]
    return [written.replace("-", MINUS) for written in texts]


def series(index: int, parts: Iterable[str]) -> str:
    """What belongs to one line: it is switched, dimmed and brought out together."""
    return f'<g data-series="{index}" style="color: var(--s{index})">{"".join(parts)}</g>'


def line(points: Sequence[Point], look: Look) -> str:
    """A line with gaps at what is not finite, and a broad one for a pointer to hit."""
    drawn = _path(points)
    if "L" not in drawn:
        return ""
    dash = (
        f' stroke-dasharray="{" ".join(f"{look.width * d:.1f}" for d in look.dash)}"'
        if look.dash
        else ""
    )
    return (
        f'<path class="line" d="{drawn}" stroke-width="{look.width:g}"{dash}/>'
        f'<path class="hit" d="{drawn}"/>'
    )


def band(low: Sequence[Point], high: Sequence[Point]) -> str:
    """The field between two lines."""
    return f'<path class="band" d="{_path([*low, *reversed(high)])}Z"/>'


def bars(ends: Iterable[tuple[float, float, float]]) -> str:
    """Thin bars: across, and their two heights."""
    return f'<path class="bars" d="{"".join(f"M{x:.1f} {a:.1f}V{b:.1f}" for x, a, b in ends)}"/>'


def dot(x: float, y: float, shape: str, radius: float, tip: str = "", kind: str = "point") -> str:
    """A marker; with a `tip` it can be pointed at."""
    lines = str(escape(tip)).replace("\n", "&#10;")  # a bare line end is a blank to XML
    said = f' data-tip="{lines}"' if tip else ""
    place = f"translate({x:.1f} {y:.1f})"
    return f'<path class="{kind}" d="{marker(shape, radius)}" transform="{place}"{said}/>'


def across_at(frame: Frame, y: float, kind: str) -> str:
    """A rule over the whole width."""
    path = f"M{frame.size.plot[0]:.1f} {frame.down(y):.1f}H{frame.right:.1f}"
    return f'<path class="{kind}" d="{path}"/>'


def _path(points: Iterable[Point]) -> str:
    drawn, pen = [], "M"
    for x, y in points:
        if isfinite(y):
            drawn.append(f"{pen}{x:.1f} {y:.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(drawn)


def marker(shape: str, r: float) -> str:
    """Path of one of matplotlib's markers about the origin."""
    if shape == ".":
        return marker("o", r / 2)
    if shape == "o":
        return (
            f"M{-r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0Z"
        )
    if shape == "x":
        return f"M{-r:.1f} {-r:.1f}L{r:.1f} {r:.1f}M{-r:.1f} {r:.1f}L{r:.1f} {-r:.1f}"
    corners, turn, inner = _MARKERS[shape]
    if inner is None:
        points = [_corner(r, turn + k / corners) for k in range(corners)]
    else:
        points = [
            _corner(r * (inner if k % 2 else 1), turn + k / 2 / corners) for k in range(2 * corners)
        ]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + "Z"


# Corners, turns from the top, and how far in every second corner lies.
_MARKERS: dict[str, tuple[int, float, float | None]] = {
    "s": (4, 0.125, None),
    "D": (4, 0.0, None),
    "^": (3, 0.0, None),
    "v": (3, 0.5, None),
    "<": (3, 0.75, None),
    ">": (3, 0.25, None),
    "p": (5, 0.0, None),
    "P": (4, 0.0, 0.4),
    "X": (4, 0.125, 0.4),
    "*": (5, 0.0, 0.42),
    "d": (2, 0.0, 0.6),
}


def _corner(radius: float, turns: float) -> Point:
    return radius * sin(2 * pi * turns), -radius * cos(2 * pi * turns)


def swatch(index: int, look: Look) -> Markup:
    """A short piece of the line with its marker."""
    drawn = [line([(1.0, 6.0), (33.0, 6.0)], look), dot(17, 6, look.marker, 3.4)]
    inside = f'<g style="color: var(--s{index})">{"".join(drawn)}</g>'
    return Markup(f'<svg class="plot" viewBox="0 0 34 12" aria-hidden="true">{inside}</svg>')
