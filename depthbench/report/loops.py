"""Loops as the report names, counts and draws them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import TypeAdapter

from depthbench.config import CoreLoop, Loop, WholeLoop
from depthbench.report.series import MARKERS, PLAIN_INK, Look, Series, hex_of
from depthbench.store import Record

_READ: TypeAdapter[Loop] = TypeAdapter(Loop)
Kind = Literal["no loop", "loop", "untied"]
KINDS: tuple[Kind, ...] = ("no loop", "loop", "untied")
_HUES: dict[Kind, tuple[float, float]] = {"loop": (0.5, 0.95), "untied": (0.04, 0.13)}
WHOLE = "whole stack × R"


@cache
def read_loop(text: str | None) -> Loop | None:
    """A row's `loop`."""
    return None if text is None else _READ.validate_json(text)


def words(loop: Loop | None) -> str:
    """As `depthbench plan` writes it, with what is not the default."""
    if loop is None:
        return "no loop"
    if isinstance(loop, WholeLoop):
        return f"whole ×{loop.rounds}"
    core = "core" if loop.tied else "untied"
    injection = "" if loop.injection == "linear" else f", injection {loop.injection}"
    times = f"×{loop.forward} (B {loop.backward})"
    return f"{loop.prelude} + {core} {times} + {loop.coda}{injection}"


def is_plain(loop: Loop | None) -> bool:
    """Whether the stack is one without a loop: a whole stack that is run once is."""
    return loop is None or (isinstance(loop, WholeLoop) and loop.rounds == 1)


def is_tied(loop: Loop | None) -> bool:
    """Whether there is a loop whose visits share weights."""
    return loop is not None and (isinstance(loop, WholeLoop) or loop.tied)


def layout_words(loop: Loop) -> str:
    """The layout, whatever its loops."""
    if isinstance(loop, WholeLoop):
        return WHOLE
    injection = "" if loop.injection == "linear" else f", injection {loop.injection}"
    return f"{loop.prelude} + core × T + {loop.coda}{injection}"


@dataclass(frozen=True)
class Loops(Series):
    """A line of all runs of one design with one (T, B), whatever prelude and coda."""

    kind: Kind = "no loop"
    layout: str = ""
    forward: int = 1
    backward: int = 1

    @property
    def is_baseline(self) -> bool:
        return self.kind == "no loop"


def loops_of(loop: Loop | None) -> Loops:
    """The line that a run with this loop is on."""
    if loop is None or is_plain(loop):
        return Loops("", 0, "{}")
    layout = "whole" if isinstance(loop, WholeLoop) else f"injection {loop.injection}"
    kind: Kind = "loop" if is_tied(loop) else "untied"
    return Loops("", 0, "{}", kind, layout, loop.forward, loop.backward)


def loop_looks(records: Iterable[Record]) -> dict[Series, Look]:
    """A look for every (T, B): hue and marker by visits, dashes where gradients are cut."""
    found = {loops_of(read_loop(record["loop"])) for record in records}
    order = sorted(found, key=lambda x: (KINDS.index(x.kind), x.forward, x.backward, x.layout))
    layouts = len({x.layout for x in order if not x.is_baseline}) > 1
    result: dict[Series, Look] = {}
    for place, loops in enumerate(order):
        alike = [other for other in order if other.kind == loops.kind]
        light, dark = _colours(loops.kind, alike.index(loops), len(alike))
        result[loops] = Look(
            label=_label(loops, layouts),
            family=loops.kind,
            summary=_summary(loops),
            light=light,
            dark=dark,
            dash=_dash(loops),
            marker=MARKERS[place % len(MARKERS)],
            width=3.0 if loops.is_baseline else 1.6,
        )
    return result


def _colours(kind: Kind, place: int, num: int) -> tuple[str, str]:
    """For light and dark ground; neighbours differ in lightness too."""
    if kind == "no loop":
        return PLAIN_INK
    first, last = _HUES[kind]
    hue = first + (last - first) * place / max(1, num - 1)
    return hex_of(hue, 0.31 + 0.12 * (place % 2), 0.8), hex_of(hue, 0.62 + 0.13 * (place % 2), 0.7)


def _label(loops: Loops, layouts: bool) -> str:
    if loops.is_baseline:
        return "no loop"
    layout = f", {loops.layout}" if layouts else ""
    if loops.kind == "untied":
        return f"untied ×{loops.forward}{layout}"
    return f"({loops.forward}, {loops.backward}){layout}"


def _summary(loops: Loops) -> str:
    if loops.is_baseline:
        return "every block is run once"
    if loops.kind == "untied":
        return f"{loops.forward} cores, each with weights of its own"
    return f"T = {loops.forward} forward loops, gradients through the last B = {loops.backward}"


def _dash(loops: Loops) -> tuple[float, ...] | None:
    if loops.kind == "untied":
        return (1.5, 1.5)
    return (5, 2) if loops.backward < loops.forward else None


def untied_of(loop: CoreLoop) -> CoreLoop:
    """The loop's control with a core of its own for every visit."""
    return loop.model_copy(update={"tied": False, "backward": loop.forward})
