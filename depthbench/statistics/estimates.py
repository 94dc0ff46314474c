"""Numbers with an interval, or with the reason why they have none."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from depthbench.statistics.grid import Array
from depthbench.statistics.noise import Pool

NO_NOISE = "no estimate of the noise: no design has two seeds at one shape, or they do not differ"


@dataclass(frozen=True)
class Estimate:
    """A number of nats with its 95 % interval.

    `p`: two-sided, for zero; `p_holm`: adjusted over the family that the owner names. `num`: runs,
    or pairs of runs, in it. `dof` and `source` tell what the noise was judged by, `reason` why the
    value or its interval is missing.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    num: int = 0
    dof: float | None = None
    source: str | None = None
    reason: str | None = None


class Term(NamedTuple):
    """A mean over `num` values in a sum, with its weights and the noise of one value."""

    weights: tuple[float, ...]
    num: int
    pool: Pool


def deviation(terms: Sequence[Term], which: int = 0) -> tuple[float, float]:
    """Standard error of `Σ weight·mean`, and its degrees of freedom.

    Means that share a pool share its degrees of freedom; of several pools they are combined as by
    Satterthwaite (1946).
    """
    variances: dict[Pool, float] = {}
    for term in terms:
        part = term.weights[which] ** 2 * term.pool.variance / term.num
        variances[term.pool] = variances.get(term.pool, 0.0) + part
    total = sum(variances.values())
    dof = total**2 / sum(v**2 / pool.dof for pool, v in variances.items() if v > 0)
    return float(np.sqrt(total)), float(dof)


def t_estimate(value: float, terms: Sequence[Term], num: int, level: float = 0.95) -> Estimate:
    """The value with the interval of Student's t."""
    se, dof = deviation(terms)
    half = float(special.stdtrit(dof, (1 + level) / 2)) * se
    p = float(2 * special.stdtr(dof, -abs(value) / se))
    return Estimate(value, value - half, value + half, p, None, num, dof, sources(terms))


def sources(terms: Sequence[Term]) -> str:
    """What the noise of a sum was judged by, every kind once."""
    return "; ".join(dict.fromkeys(term.pool.source for term in terms))


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979): the k-th smallest of m times m − k + 1, never falling."""
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p, dtype=np.float64)[order] * np.arange(len(p), 0, -1)
    adjusted: Array = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(value) for value in adjusted]


def with_holm(estimates: Sequence[Estimate]) -> list[Estimate]:
    """The same with `p_holm` over all that have a p-value."""
    tested = [e.p for e in estimates if e.p is not None]
    adjusted = iter(holm(tested))
    return [replace(e, p_holm=next(adjusted)) if e.p is not None else e for e in estimates]
