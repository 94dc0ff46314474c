"""How far one design's losses moved between two reports, with the interval of that."""

from collections.abc import Sequence

import numpy as np

from depthbench.statistics.estimates import NO_NOISE, Estimate, Term, t_estimate
from depthbench.statistics.grid import Array
from depthbench.statistics.noise import ROUNDING, Pool, pool_of
from depthbench.statistics.scatter import centred, within_dof

EQUAL = "the losses are equal: the same runs, or runs that agree in every digit"
NO_RUN = "no run that finished in both"


def changes_of(cells: Sequence[Sequence[float]]) -> tuple[list[Estimate], Estimate]:
    """The change of every cell, of which the changes of its seeds are given, and the mean of these.

    The noise is that between the seeds of a cell, pooled over cells. Where no cell has two of them,
    the mean has that between cells, which then count as a sample, and a cell has none.
    """
    change_CR = np.full((len(cells), max(map(len, cells))), np.nan)
    for row, changes in zip(change_CR, cells, strict=True):
        row[: len(changes)] = changes
    known = np.isfinite(change_CR)
    if known.any() and np.abs(change_CR[known]).max() < ROUNDING:
        equal = [Estimate(0.0 if n else None, num=int(n), reason=EQUAL) for n in known.sum(1)]
        return equal, Estimate(0.0, num=int(known.sum()), reason=EQUAL)
    source = "changes of this design's seeds within its cells"
    pool = pool_of(centred(change_CR), float(within_dof(change_CR)), source)
    kept = [row[np.isfinite(row)] for row in change_CR]
    found = [_mean(row, pool) for row in kept]
    means = np.array([row.mean() for row in kept if row.size])
    if not means.size:
        return found, Estimate(reason=NO_RUN)
    value, num = float(means.mean()), int(known.sum())
    if pool:
        terms = [Term((1 / len(means),), row.size, pool) for row in kept if row.size]
        return found, t_estimate(value, terms, num)
    source = f"changes of this design's {len(means)} cells"
    across = pool_of(centred(means), float(len(means) - 1), source)
    if across is None:
        return found, Estimate(value, num=num, reason=NO_NOISE)
    return found, t_estimate(value, [Term((1.0,), len(means), across)], num)


def _mean(changes: Array, pool: Pool | None) -> Estimate:
    if not changes.size:
        return Estimate(reason=NO_RUN)
    value = float(changes.mean())
    if pool is None:
        return Estimate(value, num=changes.size, reason=NO_NOISE)
    return t_estimate(value, [Term((1.0,), changes.size, pool)], changes.size)
