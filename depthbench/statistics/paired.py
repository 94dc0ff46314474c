"""Differences between designs, paired by seed within a shape."""

from collections.abc import Sequence

import numpy as np

from depthbench.statistics.estimates import NO_NOISE, Estimate, Term, t_estimate
from depthbench.statistics.grid import Array, Grid
from depthbench.statistics.noise import Noise

IS_BASELINE = "the baseline itself"
NO_BASELINE = "the baseline was not run"


def differences(grid: Grid, design: int, other: int, shape: int) -> Array:
    """Loss of `design` minus that of `other` at every seed that both finished."""
    difference_R: Array = grid.loss_DSR[design, shape] - grid.loss_DSR[other, shape]
    return difference_R[np.isfinite(difference_R)]


def difference(noise: Noise, design: int, other: int, shapes: Sequence[int]) -> Estimate:
    """Loss of `design` minus that of `other`, the mean over `shapes`, each counted alike.

    The interval is Student's, under the noise of `Noise.paired`; seeds at two shapes count as
    independent. Empty with a reason unless the two share a finished seed at every shape.
    """
    grid = noise.grid
    means, terms, num = [], [], 0
    for shape in shapes:
        found = differences(grid, design, other, shape)
        if not found.size:
            return Estimate(reason=_why_no_pair(grid, design, other, shape))
        means.append(found.mean())
        num += found.size
        pool = noise.paired(design, other, shape)
        if pool:
            terms.append(Term((1 / len(shapes),), found.size, pool))
    if not means:
        return Estimate(reason="no shape that most designs have finished")
    value = float(np.mean(means))
    if len(terms) < len(means):
        return Estimate(value, num=num, reason=NO_NOISE)
    return t_estimate(value, terms, num)


def _why_no_pair(grid: Grid, design: int, other: int, shape: int) -> str:
    for one in (design, other):
        if not grid.num_finished(one, shape):
            return f"{grid.designs[one].design} at {grid.why_empty(one, shape)}"
    return f"{grid.shapes[shape]}: no seed that both finished"
