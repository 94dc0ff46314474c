"""Noise and intervals against numbers worked out by hand; quantiles are from printed tables."""

import numpy as np
import pytest

from depthbench.statistics.estimates import holm
from depthbench.statistics.noise import noise_of
from depthbench.statistics.paired import difference
from depthbench.statistics.scatter import squares_of
from tests.statistics.kit import drawn, grid

T975 = {1: 12.7062, 2: 4.30265, 4: 2.77645}


def test_two_designs_are_compared_by_the_paired_t_test() -> None:
    loss = np.array([[[5.0, 6.0]], [[6.0, 9.0]]])  # differences 1 and 3: mean 2, deviation √2
    found = difference(noise_of(grid(loss)), 1, 0, [0])
    assert (found.value, found.dof, found.num) == (2.0, 1.0, 2)
    assert found.low == pytest.approx(2 - T975[1], abs=1e-4)
    assert found.high == pytest.approx(2 + T975[1], abs=1e-4)
    # t = 2 with one degree of freedom: 1 - 2·atan(2)/π
    assert found.p == pytest.approx(1 - 2 * np.arctan(2) / np.pi)


def test_three_designs_share_the_residuals_of_the_two_way_fit() -> None:
    # From seed 1 to 2 the losses move by 0, 2 and 4. Squares ½·Σ(h − 2)² = 4 on 2 degrees of
    # freedom; a difference of one seed has variance 4, that of the means 2.
    loss = np.array([[[0.0, 0.0]], [[10.0, 12.0]], [[20.0, 24.0]]])
    found = difference(noise_of(grid(loss)), 1, 0, [0])
    assert (found.value, found.dof) == (11.0, 2.0)
    assert found.low == pytest.approx(11 - T975[2] * np.sqrt(2), abs=1e-4)


def test_only_common_seeds_count() -> None:
    nan = np.nan
    loss = np.array([[[5.0, 7.0, 90.0]], [[6.0, 10.0, nan]]])  # differences 1 and 3
    squares, dof = squares_of(loss)
    assert squares[0] == pytest.approx(1.0)  # half of Σ(d − 2)²
    assert dof[0] == 1
    found = difference(noise_of(grid(loss)), 1, 0, [0])
    assert (found.value, found.num) == (2.0, 2)
    assert found.low == pytest.approx(2 - T975[1], abs=1e-4)


def test_missing_values_leave_the_fit_of_the_others() -> None:
    loss = drawn(0, 4, 1, 3)
    holed = np.concatenate([loss, np.full((1, 1, 3), np.nan)])
    holed[4, 0, 1] = 9.0  # a design with one run tells nothing about noise
    for one, other in zip(squares_of(loss), squares_of(holed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_a_seed_that_moves_all_designs_moves_no_difference() -> None:
    loss = drawn(1, 4, 3, 3)
    moved = loss + np.random.default_rng(2).normal(size=(1, 3, 3))
    for shapes in ([0], [0, 1, 2]):
        one, other = (difference(noise_of(grid(y)), 2, 0, shapes) for y in (loss, moved))
        assert one.low == pytest.approx(other.low, abs=1e-9)
        assert one.value == pytest.approx(other.value, abs=1e-9)


def test_the_mean_over_shapes_counts_every_shape_alike() -> None:
    loss = np.zeros((2, 2, 3))
    loss[1, 0], loss[1, 1] = [1, 2, 3], [7, np.nan, np.nan]
    found = difference(noise_of(grid(loss)), 1, 0, [0, 1])
    assert found.value == pytest.approx((2 + 7) / 2)
    # Differences 1, 2, 3: variance 1 on 2 degrees of freedom; (1/3 + 1/1) / 4 for the mean.
    assert found.high == pytest.approx(4.5 + T975[2] * np.sqrt(1 / 3), abs=1e-4)


def test_a_loud_design_is_judged_by_itself() -> None:
    loss = drawn(3, 6, 4, 3)
    quiet = noise_of(grid(np.delete(loss, 2, axis=0)))
    loss[2] += np.random.default_rng(4).normal(size=(4, 3))
    noise = noise_of(grid(loss))
    assert noise.apart == {2}
    assert difference(noise, 5, 0, [0]).low == pytest.approx(difference(quiet, 4, 0, [0]).low)
    own = difference(noise, 2, 0, [0])
    pairs = (loss[2] - loss[0]).var(axis=1, ddof=1).mean()
    assert own.dof == 8
    assert own.high is not None
    assert own.value is not None
    assert own.high - own.value == pytest.approx(2.30600 * np.sqrt(pairs / 3), rel=1e-5)


def test_a_loud_shape_is_judged_by_itself() -> None:
    loss = drawn(5, 6, 4, 3)
    loss[:, 1] += np.random.default_rng(6).normal(size=(6, 3))
    noise = noise_of(grid(loss))
    assert noise.groups == ((0, 2, 3), (1,))
    squares, dof = squares_of(loss[:, [1]])
    own = noise.paired(0, 1, 1)
    assert own is not None
    assert (own.variance, own.dof) == (pytest.approx(2 * squares[0] / dof[0]), 10)
    whole = difference(noise, 1, 0, [0, 1, 2, 3])
    assert whole.dof == pytest.approx(10, rel=0.01)  # the loud shape's alone


@pytest.mark.parametrize(("factor", "apart"), [(6.0, set()), (1000.0, {1})])
def test_few_runs_must_differ_much(factor: float, apart: set[int]) -> None:
    # From seed to seed the losses move by 0, f, 0.5 and 1. Without f squares are ½·(0.5² + 0.5²) on
    # 2 degrees of freedom. At f = 6 all have 11.6: F = 11.35 / 0.125, p = 0.011, times four.
    loss = np.zeros((4, 1, 2))
    loss[:, 0, 1] = [0, factor, 0.5, 1]
    assert noise_of(grid(loss)).apart == apart


def test_one_seed_has_no_interval_but_by_the_suite() -> None:
    alone = difference(noise_of(grid(drawn(7, 3, 2, 1)), 0), 1, 0, [0])
    assert alone.value is not None
    assert (alone.low, alone.high, alone.p) == (None, None, None)
    assert "no estimate of the noise" in str(alone.reason)
    loss = np.full((2, 2, 5), np.nan)
    loss[0, 0], loss[:, 1, 0], loss[1, 0, 0] = [1, 2, 3, 4, 5], [6, 8], 4
    found = difference(noise_of(grid(loss), 0), 1, 0, [1])
    # Five baseline seeds: variance 2.5; two runs differ by 5 on 4 degrees of freedom.
    assert found.value == 2.0
    assert found.high == pytest.approx(2 + T975[4] * np.sqrt(5), abs=1e-4)
    assert "5 baseline seeds at L2/d128" in str(found.source)


def test_equal_losses_give_no_interval_of_no_width() -> None:
    found = difference(noise_of(grid(np.ones((3, 2, 3)))), 1, 0, [0])
    assert (found.value, found.low, found.high) == (0.0, None, None)
    assert found.reason


def test_the_noise_within_cells_counts_what_seeds_share() -> None:
    loss = np.array([[[0.0, 2.0]], [[0.0, 0.0]]])
    single = noise_of(grid(loss)).single
    # Squares within cells 2 on 2; of them 1 on 1 is the two-way rest, 1 on 1 the seed's.
    assert single is not None
    assert (single.variance, single.dof) == (pytest.approx(1.0), pytest.approx(2.0))
    shared = np.zeros((10, 3, 2)) + np.random.default_rng(8).normal(size=(1, 3, 2))
    single = noise_of(grid(shared)).single
    assert single is not None
    assert single.dof == pytest.approx(3)  # ten copies of one sample are one sample


def test_a_lone_run_tells_nothing() -> None:
    loss = np.array([[[1.0, 3.0], [9.0, np.nan]]])
    own = noise_of(grid(loss)).own(0, 0)
    assert own is not None
    # Two residuals of ±1, scaled to the variance 2 on one degree of freedom; no zero among them.
    np.testing.assert_allclose(np.sort(own.residuals), [-np.sqrt(2), np.sqrt(2)])


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
