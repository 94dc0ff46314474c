"""Whether a design became faster, which only runs of one host can tell."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from depthbench.store import Record

PLACE = ("host", "device", "threads")
"""What two runs must agree in before their times may be compared."""


@dataclass(frozen=True)
class Speed:
    """Tokens per second after over before, the geometric mean over `num` pairs of runs.

    `reason`: why there is none, or why some pairs are not in it.
    """

    ratio: float | None
    num: int
    reason: str | None


def speed_of(pairs: Iterable[tuple[Record, Record]]) -> Speed:
    """The speed of runs, each before and after. Those of another host are left out."""
    logs, reasons = [], dict[str, None]()
    for before, after in pairs:
        if before["status"] != "done" or after["status"] != "done":
            continue
        if reason := _why_not(before, after):
            reasons[reason] = None
            continue
        logs.append(math.log(after["tokens_per_second"] / before["tokens_per_second"]))
    reason = "; ".join([*reasons][:3]) or None
    if not logs:
        return Speed(None, 0, reason or "no run finished in both")
    return Speed(math.exp(fmean(logs)), len(logs), reason)


def _why_not(before: Record, after: Record) -> str | None:
    if not all(_known(row["tokens_per_second"]) for row in (before, after)):
        return "speed was not recorded"
    unnamed = [name for name in PLACE if before[name] is None or after[name] is None]
    if unnamed:
        return f"{', '.join(unnamed)} not recorded"
    differing = [name for name in PLACE if before[name] != after[name]]
    if differing:
        parts = (f"{name} was {before[name]} and is {after[name]}" for name in differing)
        return ", ".join(parts)
    return None


def _known(speed: float | None) -> bool:
    return speed is not None and 1e-9 < speed < 1e15
