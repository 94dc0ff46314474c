"""Published statements about looped stacks beside what a law gives."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from depthbench.config import Frozen
from depthbench.errors import InputError
from depthbench.inputs import read_yaml, validated
from depthbench.scaling.exponents import growth_at_fixed_size
from depthbench.scaling.law import Law
from depthbench.scaling.planner import Planner

_FILE = Path(__file__).parent / "statements.yaml"
_REFERENCE = 410e6  # parameters of the looped model that the iso-depth paper takes as its example


class Statement(Frozen):
    """One published statement: its quantity, and between which values a law meets it."""

    measure: str
    paper: str
    text: str
    published: str
    low: float | None = None
    high: float | None = None


class _Statements(Frozen):
    statements: tuple[Statement, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Verdict:
    """What the law gives, None where it is silent, and whether it was calibrated to that."""

    statement: Statement
    value: float | None
    verdict: Literal["meets", "disagrees", "silent"]
    used: bool
    reason: str = ""


def statements() -> tuple[Statement, ...]:
    """All that ship with the package."""
    return validated(_Statements, read_yaml(_FILE), str(_FILE)).statements


def judge(law: Law, share: float | None = None) -> list[Verdict]:
    """Every published statement beside what `law` gives at its own share, or at `share`."""
    return [_judged(Planner(law, share), statement) for statement in statements()]


def _judged(planner: Planner, statement: Statement) -> Verdict:
    used = statement.measure in planner.law.calibrated_to
    try:
        value = MEASURES[statement.measure](planner)
    except InputError as error:
        return Verdict(statement, None, "silent", used, str(error))
    low, high = statement.low, statement.high
    meets = (low is None or value >= low) and (high is None or value <= high)
    return Verdict(statement, value, "meets" if meets else "disagrees", used)


def _best_loop(planner: Planner) -> float:
    loops = [pair for pair in planner.pairs() if pair != (1, 1)]
    return min(planner.relative_compute(pair, (1, 1)) for pair in loops)


def _g_ratio(planner: Planner, first: tuple[int, int], second: tuple[int, int]) -> float:
    return float(planner.law.g_at(*first) / planner.law.g_at(*second))


def _diminishing_returns(planner: Planner) -> float:
    g = {r: float(planner.law.g_at(r, r)) for r in (1, 2, 4)}
    return (g[4] - g[2]) / (4 - 2) / (g[2] - g[1])


MEASURES: dict[str, Callable[[Planner], float]] = {
    "truncation-saving": lambda p: 1 - p.relative_compute((8, 2), (8, 8)),
    "equal-cost-split": lambda p: _g_ratio(p, (4, 4), (8, 2)),
    "truncation-discount": lambda p: _g_ratio(p, (8, 2), (8, 8)),
    "diminishing-returns": _diminishing_returns,
    "best-loop-compute": _best_loop,
    "parameter-saving": lambda p: 1 - 1 / p.worth(2, 2),
    "matching-compute": lambda p: p.relative_compute((2, 2), (1, 1)),
    "loop-exponent": lambda p: growth_at_fixed_size(p).loops,
    "token-exponent": lambda p: growth_at_fixed_size(p).tokens,
    "equivalent-size": lambda p: _REFERENCE * p.worth(4, 4),
    "equivalent-cost": lambda p: _REFERENCE * p.cost(4, 4),
}
"""By the name of the measure; each is what the statement's text says in words."""
