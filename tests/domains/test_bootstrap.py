"""Intervals against the ones that theory gives."""

import numpy as np

from depthbench.domains.bootstrap import NUM_RESAMPLES, interval, resampled_ratios


def test_the_spread_is_the_standard_error_of_a_mean() -> None:
    values = np.random.default_rng(1).normal(5, 2, 400)
    ratios = resampled_ratios("a", values, np.ones(400))
    error = values.std() / np.sqrt(400)
    assert ratios.shape == (NUM_RESAMPLES,)
    assert abs(ratios.std() / error - 1) < 0.05
    low, high = interval(ratios)
    assert abs(low - (values.mean() - 1.96 * error)) < 0.1 * error
    assert abs(high - (values.mean() + 1.96 * error)) < 0.1 * error


def test_the_ratio_is_of_sums_and_not_a_mean_of_ratios() -> None:
    """A one-token item of 10 nats among 100-token items of 1 nat a token hardly counts."""
    nats, tokens = np.array([10.0] + [100.0] * 99), np.array([1.0] + [100.0] * 99)
    low, high = interval(resampled_ratios("a", nats, tokens))
    assert 1 <= low < high < 1.01


def test_numerator_and_denominator_are_drawn_together() -> None:
    tokens = np.random.default_rng(2).integers(1, 100, 50).astype(float)
    np.testing.assert_allclose(resampled_ratios("a", 3 * tokens, tokens), 3)


def test_draws_are_fixed_by_the_name_and_not_shared() -> None:
    values, ones = np.random.default_rng(3).normal(size=64), np.ones(64)
    first, again, other = (resampled_ratios(name, values, ones) for name in ("a", "a", "b"))
    assert (first == again).all()
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.05


def test_many_items_are_drawn_a_few_resamples_at_a_time() -> None:
    values = np.random.default_rng(4).normal(size=3000)
    ratios = resampled_ratios("a", values, np.ones(3000))
    assert len(set(ratios.tolist())) == NUM_RESAMPLES
    assert abs(ratios.std() / (values.std() / np.sqrt(3000)) - 1) < 0.05
