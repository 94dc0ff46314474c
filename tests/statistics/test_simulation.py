"""What intervals and ranks promise, kept over many matrices whose truth is known.

Generators are seeded, so that a pass is a pass; counts are large enough for chance to move a share
by less than the band.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from depthbench.statistics.depth import depth_benefits
from depthbench.statistics.estimates import Estimate
from depthbench.statistics.grid import Array
from depthbench.statistics.noise import Noise, noise_of
from depthbench.statistics.paired import difference
from depthbench.statistics.ranks import ALPHA_LADDER, ALPHA_SHAPES, ranks
from tests.statistics.kit import drawn, grid

DEVIATION = 0.01
SEEDS = [2, 3, 5]


def matrices(num: int, designs: int, shapes: int, seeds: int) -> Iterator[Array]:
    for number in range(num):
        yield drawn(1000 * seeds + number, designs, shapes, seeds)


def covers_zero(estimate: Estimate) -> bool:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= 0 <= estimate.high


def tied(noise: Noise, num_shapes: int) -> bool:
    """Whether all designs share first place over the ladder and at every shape."""
    shapes = ranks(noise, [[shape] for shape in range(num_shapes)], ALPHA_SHAPES)
    ladder = ranks(noise, [list(range(num_shapes))], ALPHA_LADDER)
    return all(rank.rank == 1 for scope in shapes + ladder for rank in scope)


def shifted(loss_DSR: Array, standard_errors: float) -> Array:
    """The second design better by that many standard errors of its mean difference to another."""
    _, num_shapes, num_seeds = loss_DSR.shape
    better = loss_DSR.copy()
    better[1] -= standard_errors * DEVIATION * np.sqrt(2 / (num_shapes * num_seeds))
    return better


@pytest.mark.parametrize("num_seeds", SEEDS)
@pytest.mark.parametrize("num_designs", [2, 6])
def test_paired_intervals_cover(num_designs: int, num_seeds: int) -> None:
    at_shapes, over_shapes = [], []
    for loss in matrices(900 if num_designs == 2 else 300, num_designs, 4, num_seeds):
        noise = noise_of(grid(loss), 0)
        for design in range(1, num_designs):
            at_shapes += [covers_zero(difference(noise, design, 0, [s])) for s in range(4)]
            over_shapes.append(covers_zero(difference(noise, design, 0, range(4))))
    assert 0.93 <= np.mean(at_shapes) <= 0.97
    assert 0.93 <= np.mean(over_shapes) <= 0.97


@pytest.mark.parametrize("num_seeds", SEEDS)
def test_bootstrap_intervals_of_depth_cover(num_seeds: int) -> None:
    own, beyond = [], []
    for number in range(350):
        # No effect of the seed: else the designs' own intervals are one sample, not five.
        generator = np.random.default_rng(10_000 * num_seeds + number)
        loss = generator.normal(size=(5, 3, num_seeds))
        found = depth_benefits(noise_of(grid(loss), 0), number, 500)
        own += [covers_zero(e) for b in found for e in (b.slope, b.change)]
        beyond += [covers_zero(e) for b in found[1:] for e in (b.slope_beyond, b.change_beyond)]
    assert 0.93 <= np.mean(own) <= 0.97
    assert 0.93 <= np.mean(beyond) <= 0.97


@pytest.mark.parametrize(("num_designs", "num_shapes"), [(2, 5), (10, 2)])
def test_one_distribution_is_tied(num_designs: int, num_shapes: int) -> None:
    found = [
        tied(noise_of(grid(loss)), num_shapes) for loss in matrices(300, num_designs, num_shapes, 3)
    ]
    assert np.mean(found) >= 0.93


def test_a_shift_of_three_standard_errors_is_found_by_ranks() -> None:
    found = []
    for loss in matrices(500, 2, 5, 5):
        [ladder] = ranks(noise_of(grid(shifted(loss, 3))), [[0, 1, 2, 3, 4]], ALPHA_LADDER)
        found.append([rank.rank for rank in ladder] == [2, 1])
    assert np.mean(found) >= 0.8


@pytest.mark.parametrize("num_seeds", [3, 5])
def test_a_shift_of_three_standard_errors_is_found_by_the_interval(num_seeds: int) -> None:
    found = []
    for loss in matrices(300, 10, 5, num_seeds):
        estimate = difference(noise_of(grid(shifted(loss, 3))), 1, 0, [0, 1, 2, 3, 4])
        found.append(estimate.high is not None and estimate.high < 0)
    assert np.mean(found) >= 0.8


def test_a_loud_design_is_not_given_the_others_intervals() -> None:
    found = []
    for loss in matrices(150, 8, 4, 3):
        generator = np.random.default_rng(int(1e6 * loss[0, 0, 0]))
        loss[1] += 5 * DEVIATION * generator.normal(size=(4, 3))
        noise = noise_of(grid(loss), 0)
        found += [covers_zero(difference(noise, 1, 0, [shape])) for shape in range(4)]
    assert np.mean(found) >= 0.93  # with the common estimate it is 0.6
