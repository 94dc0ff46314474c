"""The x axis of a panel, and what may stand on it."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Literal, NamedTuple

from depthbench.report.lines import ShapeKey


class At(NamedTuple):
    """A place that is no shape."""

    x: float
    label: str


Place = ShapeKey | At


@dataclass(frozen=True)
class Axis:
    """`against` names it within a sentence; `falls`: greater values to the left.

    `base` is that of its logarithm. `write` gives the text under a place; without it ticks stand at
    round numbers. Labels need `room` times the font size. A line has a gap where it lacks a place
    that others have, or goes through its own places only, or points are not joined at all. From
    `least_cut` points on, far ones stand at the panel's edge so that they do not flatten the rest.
    """

    name: str
    against: str
    falls: bool = False
    base: int = 2
    write: Callable[[Place], str] | None = None
    room: float = 6.2
    line: Literal["gaps", "through", "none"] = "gaps"
    least_cut: int = 8

    def ticks(self, places: list[Place]) -> list[tuple[float, str]]:
        """Where ticks stand and what they say, from left to right."""
        if self.write:
            texts = {place.x: self.write(place) for place in places}
            return list(texts.items())
        return round_ticks(min(place.x for place in places), max(place.x for place in places))


def round_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """The round numbers from `low` to `high`: as round as lets two of them lie there, or both."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for steps in ((1, 2, 5), range(1, 10)):
        every = [(step * 10.0**power, f"{step}e{power}") for power in decades for step in steps]
        inside = [tick for tick in every if low <= tick[0] <= high]
        if len(inside) > 1:
            return inside
    return [(x, f"{x:.2g}".replace("e+", "e")) for x in dict.fromkeys((low, high))]


ASPECT = Axis(
    "d_model / layers, log scale: shallow, wide → deep, narrow",
    "aspect ratio",
    falls=True,
    least_cut=0,
    write=lambda place: f"{place.label}\n{place.x:.3g}",
)
EXECUTED = Axis(
    "blocks executed, log scale", "executed blocks", write=lambda place: f"{place.x:g}", room=3.0
)
COMPUTE = Axis("training FLOPs, log scale", "training FLOPs", base=10, room=3.6, line="through")
LOOPS = Axis(
    "forward and backward loops (T, B)",
    "the loops",
    write=lambda place: place.label,
    room=3.6,
    line="none",
)
RATE = Axis(
    "peak learning rate, log scale",
    "learning rate",
    write=lambda place: place.label,
    room=3.4,
    line="through",
    least_cut=0,
)
