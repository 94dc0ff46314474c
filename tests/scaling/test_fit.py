"""Recovery of known laws from synthetic runs."""

import numpy as np
import pytest

from depthbench.scaling import Runs, fit
from depthbench.scaling.fitting import central
from tests.scaling.kit import BAD_FIVE, FULL, GOOD_FIVE, PAIRS, law_of, runs_of

LAPTOP = {"widths": np.geomspace(1e5, 1e6, 4), "budgets": [5e5, 1e6, 2e6]}


def errors(found, truth) -> dict[str, float]:
    return {
        name: abs(found.constants[name] / truth.constants[name] - 1) for name in truth.constants
    }


@pytest.mark.parametrize(
    ("form", "pairs"),
    [
        ("exponential", PAIRS),
        ("iso-depth", FULL),
        ("free", [(1, 1), (2, 1), (2, 2), (4, 2)]),
    ],
)
def test_without_noise_every_constant_within_a_thousandth(form, pairs) -> None:
    law = law_of(form)
    found = fit(runs_of(law, pairs), form, num_starts=4, num_resamples=0)
    assert max(errors(found.law, law).values()) < 1e-3
    assert found.noise < 1e-6
    assert found.warnings == ()
    assert found.law.recurrent_share == pytest.approx(0.49)


def test_loops_that_harm_are_found() -> None:
    law = law_of(c=-0.25)
    found = fit(runs_of(law), num_starts=4, num_resamples=0)
    assert max(errors(found.law, law).values()) < 1e-3


def test_with_noise_within_the_tolerances() -> None:
    law, found = law_of(), []
    for seed in range(5):
        runs = runs_of(law, noise=0.002, seed=seed)
        fitted = fit(runs, num_starts=2, num_resamples=0, seed=seed).law
        off = errors(fitted, law)
        sizes = [runs.N_once + each.g_at(runs.T, runs.B) * runs.N_rec for each in (fitted, law)]
        found.append([off["p"], off["q"], off["c"], np.abs(sizes[0] / sizes[1] - 1).max()])
    assert np.all(np.median(found, axis=0) <= [0.10, 0.10, 0.10, 0.02])
    assert np.all(np.max(found, axis=0) <= [0.20, 0.20, 0.07, 0.04])


def test_a_few_broken_runs_do_not_move_the_law() -> None:
    law = law_of()
    runs = runs_of(law)
    loss = runs.loss.copy()
    loss[[3, 50, 111]] *= 1.1
    broken = Runs(runs.N_once, runs.N_rec, runs.T, runs.B, runs.D, loss)
    found = fit(broken, num_starts=3, num_resamples=0)
    assert max(errors(found.law, law).values()) < 5e-3
    assert np.abs(found.residuals[[3, 50, 111]]) == pytest.approx([np.log(1.1)] * 3, abs=1e-3)


def test_ranges_are_those_of_the_runs() -> None:
    runs = runs_of(law_of(), GOOD_FIVE, **LAPTOP)
    found = fit(runs, num_starts=1, num_resamples=0).law.fitted_range
    assert found["N"] == pytest.approx((1e5, 1e6))
    assert found["D"] == (5e5, 2e6)
    assert (found["T"], found["B"]) == ((1, 8), (1, 8))
    # Cheapest: one pass at the least size; dearest: 8 full loops of 0.49 of the largest.
    dearest = 2e6 * 6 * 1e6 * (0.51 + 0.49 * 8)
    assert found["compute"] == pytest.approx((5e5 * 6 * 1e5, dearest))


@pytest.mark.parametrize(
    ("pairs", "noise", "vague"), [(BAD_FIVE, 0.002, True), (GOOD_FIVE, 0.002, False)]
)
def test_a_useless_design_is_said_to_be_one(pairs, noise, vague) -> None:
    runs = runs_of(law_of(), pairs, noise=noise, **LAPTOP)
    found = fit(runs, num_starts=6, num_resamples=0)
    assert any(warning.startswith("q ") for warning in found.warnings) is vague


@pytest.mark.parametrize(("noise", "vague"), [(0.006, False), (0.015, True)])
def test_a_deviation_beyond_30_percent_is_said(noise, vague) -> None:
    """Least squares leaves q to 6.6 % at a noise of 0.2 %, and so to 20 and 50 % at these."""
    runs = runs_of(law_of(), GOOD_FIVE, noise=noise, **LAPTOP)
    found = fit(runs, num_starts=6, num_resamples=0)
    said = [w for w in found.warnings if w.startswith("q is hardly determined")]
    assert bool(said) is vague


def test_intervals_are_the_central_95_percent() -> None:
    assert central(np.arange(201.0)) == (5.0, 195.0)


def test_a_constant_at_its_bound_is_named() -> None:
    """β where loss does not depend on tokens: the token term can only vanish."""
    law = law_of("iso-depth")
    runs = runs_of(law, FULL)
    flat = law.loss(runs.N_once, runs.N_rec, runs.T, runs.B, np.full(len(runs), 1e30))
    flat_runs = Runs(runs.N_once, runs.N_rec, runs.T, runs.B, runs.D, flat)
    found = fit(flat_runs, "iso-depth", num_starts=8, num_resamples=0)
    assert any(w.startswith(("B_D", "beta")) for w in found.warnings), found.warnings


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    law, hits, widths = law_of(), [], []
    for seed in range(14):
        runs = runs_of(law, GOOD_FIVE, noise=0.002, seed=seed, **LAPTOP)
        found = fit(runs, num_starts=1, num_resamples=40, seed=seed)
        for name in ("p", "q", "c", "alpha", "beta"):
            low, high = found.intervals[name]
            hits.append(low <= law.constants[name] <= high)
        low, high = found.intervals["q"]
        widths.append((high - low) / 1.022)
    assert 0.85 <= np.mean(hits) <= 0.995
    # At this noise least squares leaves q to 6.6 %: a central 95 % of about four times that.
    assert 0.15 < np.median(widths) < 0.45


def test_seeds_of_a_run_are_drawn_together() -> None:
    """Four equal copies tell nothing new: drawn one by one they would halve the intervals."""
    once = runs_of(law_of("iso-depth"), FULL, noise=0.002, **LAPTOP)
    copies = once.take(np.repeat(np.arange(len(once)), 4))
    single, multiple = (
        fit(runs, "iso-depth", num_starts=1, num_resamples=50).intervals["phi"]
        for runs in (once, copies)
    )
    assert np.diff(multiple) == pytest.approx(np.diff(single), rel=0.05)


def test_every_cell_stays_in_every_resample() -> None:
    runs = runs_of(law_of("iso-depth"), FULL, noise=0.002, **LAPTOP)
    found = fit(runs, "free", num_starts=2, num_resamples=40)
    for worth in found.worths[1:]:
        assert worth.interval is not None
        low, high = worth.interval
        assert low < worth.T**0.459 * 1.03
        assert high > worth.T**0.459 * 0.97
        assert high - low < 0.3 * worth.g
    assert found.worths[0].interval == (1.0, 1.0)


def test_the_same_seed_gives_the_same_fit() -> None:
    runs = runs_of(law_of("iso-depth"), FULL, noise=0.002, **LAPTOP)
    first, again, other = (
        fit(runs, "iso-depth", num_starts=1, num_resamples=10, seed=seed) for seed in (1, 1, 2)
    )
    assert first.intervals == again.intervals
    assert first.intervals != other.intervals
