"""What the noise lets a matrix see: the smallest detectable difference, and a check on nothing."""

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from depthbench.statistics.estimates import Estimate
from depthbench.statistics.grid import DesignKey, Shape
from depthbench.statistics.noise import Noise, Pool

ALPHA, POWER = 0.05, 0.8


@dataclass(frozen=True)
class Scatter:
    """Standard deviation in nats, and the difference that `num_seeds` of each design would show."""

    sd: float
    dof: float
    source: str
    num_seeds: int
    detectable: float


@dataclass(frozen=True)
class NoiseReport:
    """The noise of a matrix.

    `run`: between runs of one design that differ in the seed alone; its detectable difference is of
    two designs at one shape, not paired. `paired`: of the difference of two designs at one seed,
    with the difference that pairing detects. `apart`: what scatters more and is judged by itself.
    """

    run: Scatter | None
    paired: Scatter | None
    designs_apart: tuple[DesignKey, ...]
    shapes_apart: tuple[Shape, ...]


def smallest_detectable(
    standard_error: float, dof: float, alpha: float = ALPHA, power: float = POWER
) -> float:
    """The true difference that a two-sided t-test finds with probability `power`, in nats.

    `standard_error` is that of the estimated difference: √(2/n)·sd for means of n independent runs
    each, sd/√n for n paired differences. Solves P(t' > t_{1−α/2}) = power for the noncentrality
    of t' with `dof` degrees of freedom (Cohen 1988, §2.4; the other tail is below 1e-4); with many
    of them that is (z_{1−α/2} + z_power)·standard_error.
    """
    critical = float(special.stdtrit(dof, 1 - alpha / 2))

    def missing(noncentrality: float) -> float:
        return 1.0 - float(special.nctdtr(dof, noncentrality, critical)) - power

    return standard_error * float(optimize.brentq(missing, 0.0, 1.5 * critical + 5, xtol=1e-10))


def noise_report(noise: Noise) -> NoiseReport:
    """The noise that every interval rests on, and what as many seeds as the matrix has can see."""
    grid = noise.grid
    counts = np.isfinite(grid.loss_DSR).sum(-1)
    num_seeds = int(np.median(counts[counts > 0])) if counts.any() else 0
    run, paired = noise.single, noise.common
    return NoiseReport(
        _scatter(run, num_seeds, 2.0) if run else None,
        _scatter(paired, num_seeds, 1.0) if paired else None,
        tuple(grid.designs[d] for d in sorted(noise.apart)),
        tuple(grid.shapes[group[0]] for group in noise.groups[1:]),
    )


def _scatter(pool: Pool, num_seeds: int, factor: float) -> Scatter:
    error = float(np.sqrt(factor * pool.variance / num_seeds))
    detectable = smallest_detectable(error, pool.dof)
    return Scatter(float(np.sqrt(pool.variance)), pool.dof, pool.source, num_seeds, detectable)


def null_check(noise: Noise) -> Estimate:
    """The baseline against itself, which must show no difference (but 5 times in 100).

    Its seeds at every shape are taken two and two, in order, and one subtracted from the other, in
    turns the earlier from the later and the later from the earlier, so that what a seed does at all
    shapes alike cancels. The mean of these differences has the interval of Student's t.
    """
    if noise.baseline is None:
        return Estimate(reason="the baseline was not run")
    differences = []
    for shape, losses in enumerate(noise.grid.loss_DSR[noise.baseline]):
        finished = losses[np.isfinite(losses)]
        for pair in range(len(finished) // 2):
            sign = (-1) ** (shape + pair)
            differences.append(sign * (finished[2 * pair + 1] - finished[2 * pair]))
    num = len(differences)
    if num < 2 or np.ptp(differences) == 0:
        return Estimate(num=num, reason="needs two pairs of baseline seeds at a shape")
    mean, se = float(np.mean(differences)), float(np.std(differences, ddof=1) / np.sqrt(num))
    half = float(special.stdtrit(num - 1, 0.975)) * se
    p = float(2 * special.stdtr(num - 1, -abs(mean) / se))
    source = "pairs of baseline seeds"
    return Estimate(mean, mean - half, mean + half, p, None, num, float(num - 1), source)
