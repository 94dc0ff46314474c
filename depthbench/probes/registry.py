"""Probes by name. A probe is one function in one file, registered by one decorator."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from depthbench.errors import InputError
from depthbench.probes.executed import Executed
from residuals import unknown

Picture = Literal["pairs", "blocks"]


@dataclass(frozen=True)
class Findings:
    """What a probe found: `values` to draw and keep, `summary` for the row.

    `values` maps a name to numbers: a square matrix for pairs, else one per place or state. None
    marks what is not defined. `reason` says why the design cannot answer; then there are no values.
    """

    values: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, float | None] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class Probe:
    """`axes`: what the rows and columns of pairs are, or the value and its place in depth.

    `scale`: limits of what is drawn, the same for every design, or None where none is known.
    """

    name: str
    title: str
    definition: str
    unit: str
    picture: Picture
    axes: tuple[str, str]
    scale: tuple[float, float] | None
    thresholds: dict[str, float]
    measure: Callable[[Executed, dict[str, float]], Findings]


_probes: dict[str, Probe] = {}


def probe(
    name: str,
    *,
    title: str,
    definition: str,
    unit: str,
    picture: Picture = "blocks",
    axes: tuple[str, str] = ("", "place in depth"),
    scale: tuple[float, float] | None = None,
    thresholds: dict[str, float] | None = None,
) -> Callable[[Callable[[Executed, dict[str, float]], Findings]], Probe]:
    """Registers a function of the executed stack and the thresholds as a probe."""

    def register(measure: Callable[[Executed, dict[str, float]], Findings]) -> Probe:
        made = Probe(name, title, definition, unit, picture, axes, scale, thresholds or {}, measure)
        _probes[name] = made
        return made

    return register


def names() -> list[str]:
    """All probes, in the order of their registration."""
    return list(_probes)


def get(name: str) -> Probe:
    """The probe of that name. Raises `InputError` with the nearest ones."""
    if name not in _probes:
        raise InputError(unknown("probe", name, names()))
    return _probes[name]
