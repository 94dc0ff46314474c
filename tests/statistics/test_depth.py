"""Depth benefit: least squares by hand, draws that are reproducible, and a time limit."""

import time
from dataclasses import replace

import numpy as np
import pytest

from depthbench.statistics.depth import contrasts, depth_benefits, resampled
from depthbench.statistics.estimates import Term, deviation
from depthbench.statistics.noise import Pool, noise_of
from tests.statistics.kit import drawn, grid


def test_slope_and_change_by_hand() -> None:
    # log2 of the aspect ratio is 6, 4, 2: slope Σ(x − 4)·y / 8.
    loss = np.array([[[3.0, 3.2], [4.0, 4.2], [8.0, 8.2]], [[1.0, 1.1], [1.0, 1.1], [1.0, 1.4]]])
    base, other = depth_benefits(noise_of(grid(loss), 0))
    assert base.slope.value == pytest.approx((2 * 3.1 - 2 * 8.1) / 8)
    assert base.change.value == pytest.approx(5.0)
    assert other.slope_beyond.value == pytest.approx((2 * 1.05 - 2 * 1.2) / 8 + 1.25)
    assert other.change_beyond.value == pytest.approx(0.15 - 5.0)
    assert base.slope_beyond.reason == "the baseline itself"


def test_uneven_aspect_ratios() -> None:
    ratios = [68.0, 24.0, 9.5, 4.6]
    losses = np.array([2.0, 2.5, 1.0, 4.0])
    slope = np.polyfit(np.log2(ratios), losses, 1)[0]
    np.testing.assert_allclose(losses @ contrasts(ratios), [slope, 2.0])


def test_draws_have_the_spread_of_student() -> None:
    residuals = np.random.default_rng(0).normal(size=200)
    residuals -= residuals.mean()
    pool = Pool(residuals / residuals.std(), 4.0, "")
    terms = [Term((0.5,), 2, pool), Term((-1.0,), 3, pool)]
    se, dof = deviation(terms)
    assert (se, dof) == (pytest.approx(np.sqrt(0.25 / 2 + 1 / 3)), pytest.approx(4.0))
    draws = resampled("key", terms, 200_000)[:, 0]
    # Of t with 4 degrees of freedom.
    np.testing.assert_allclose(np.quantile(draws, [0.9, 0.975]) / se, [1.533, 2.776], rtol=0.03)


def test_unequal_pools_combine_by_satterthwaite() -> None:
    one, two = Pool(np.array([1.0, -1.0]), 2.0, "a"), Pool(np.array([2.0, -2.0]), 5.0, "b")
    se, dof = deviation([Term((1.0,), 1, one), Term((1.0,), 2, two), Term((1.0,), 2, two)])
    assert se == pytest.approx(np.sqrt(1 + 2 + 2))
    assert dof == pytest.approx(25 / (1 / 2 + 16 / 5))


def test_draws_depend_on_the_seed_and_the_design_alone() -> None:
    loss = drawn(1, 5, 4, 3)
    whole = grid(loss)
    kept = [0, 2, 4]
    part = replace(whole, designs=whole.designs[::2], loss_DSR=loss[kept])
    few, many = (depth_benefits(noise_of(g, 0)) for g in (part, whole))
    assert [few[i].slope.low for i in range(3)] == [many[i].slope.low for i in kept]
    again, other = (depth_benefits(noise_of(grid(loss), 0), seed) for seed in (0, 1))
    assert again == many
    assert again[1].slope.low != other[1].slope.low
    assert again[1].slope.low == pytest.approx(other[1].slope.low, abs=2e-3)


def test_holm_runs_over_designs() -> None:
    loss = drawn(2, 4, 4, 3)
    loss[1] += np.array([0, 0.1, 0.2, 0.3])[:, None]
    found = depth_benefits(noise_of(grid(loss), 0))
    assert found[1].change_beyond.p == pytest.approx(2 / 10_001)  # no draw on the other side
    assert found[1].change_beyond.p_holm == pytest.approx(3 * 2 / 10_001)
    assert found[1].slope_beyond.value == pytest.approx(-0.05, abs=0.01)
    assert found[2].change_beyond.p_holm == 1.0


def test_a_missing_shape_is_a_reason_not_a_shorter_ladder() -> None:
    loss = drawn(3, 4, 3, 2)
    loss[2, 1] = np.nan
    found = depth_benefits(noise_of(grid(loss), 0))
    assert found[2].slope.value is None
    assert found[2].slope.reason == "d2 at L4/d64: not run"
    assert found[1].slope.value is not None
    [one] = depth_benefits(noise_of(grid(loss[:1, :1]), 0))
    assert "two shapes" in str(one.slope.reason)


def test_one_seed_has_a_slope_without_interval() -> None:
    found = depth_benefits(noise_of(grid(drawn(4, 3, 3, 1)), 0))
    assert found[1].slope.value is not None
    assert found[1].slope.low is None
    assert found[1].slope.reason


def test_the_bootstrap_of_a_full_matrix_is_fast() -> None:
    noise = noise_of(grid(drawn(5, 10, 5, 3)), 0)
    start = time.process_time()
    depth_benefits(noise)
    assert time.process_time() - start < 1.0
