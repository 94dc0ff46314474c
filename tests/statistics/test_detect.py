"""What a matrix can see: against closed formulas, a numerical integral, and a check on nothing."""

import numpy as np
import pytest
from scipy import stats

from depthbench.statistics import smallest_detectable
from depthbench.statistics.detect import noise_report, null_check
from depthbench.statistics.noise import noise_of
from tests.statistics.kit import drawn, grid

Z = 1.959964 + 0.841621  # the quantiles of 0.975 and 0.8


@pytest.mark.parametrize("num_seeds", [2, 3, 5])
def test_much_knowledge_of_the_noise_gives_the_normal_formula(num_seeds: int) -> None:
    error = 0.0013 * np.sqrt(2 / num_seeds)
    assert smallest_detectable(error, 1e6) == pytest.approx(Z * error, rel=1e-5)


@pytest.mark.parametrize("dof", [1.0, 2.0, 4.0, 9.5, 36.0])
def test_the_difference_is_found_four_times_in_five(dof: float) -> None:
    found = smallest_detectable(1.0, dof)
    critical = stats.t.ppf(0.975, dof)
    # P(z + δ > t·√(w / f)) over w from χ² with f degrees of freedom, at evenly spread quantiles
    w = stats.chi2.ppf((np.arange(200_000) + 0.5) / 200_000, dof)
    power = stats.norm.sf(critical * np.sqrt(w / dof) - found).mean()
    assert power == pytest.approx(0.8, abs=1e-4)


def test_few_degrees_of_freedom_agree_with_the_common_formula() -> None:
    for dof in (4, 8, 20, 60):  # t₀.₉₇₅ + t₀.₈, an approximation
        closed = stats.t.ppf(0.975, dof) + stats.t.ppf(0.8, dof)
        assert smallest_detectable(1.0, dof) == pytest.approx(closed, rel=0.02)


def test_the_suite_estimates_its_noise_from_baseline_seeds() -> None:
    loss = np.full((3, 2, 6), np.nan)
    loss[:, 0, :2] = drawn(0, 3, 1, 2)[:, 0]
    loss[0, 1] = [1, 2, 3, 4, 5, 9]
    run = noise_report(noise_of(grid(loss), 0)).run
    assert run is not None
    assert run.sd == pytest.approx(np.sqrt(8.0))  # squares 9 + 4 + 1 + 0 + 1 + 25 on 5
    assert (run.dof, run.num_seeds) == (5, 2)
    assert run.detectable == pytest.approx(smallest_detectable(np.sqrt(8.0), 5))
    assert "6 baseline seeds at L4/d64" in run.source


def test_pairing_sees_more_where_seeds_move_designs_together() -> None:
    report = noise_report(noise_of(grid(drawn(1, 10, 5, 8)), 0))
    assert report.run is not None
    assert report.paired is not None
    assert report.run.sd == pytest.approx(0.01 * np.sqrt(26), rel=0.3)
    assert report.paired.sd == pytest.approx(0.01 * np.sqrt(2), rel=0.12)
    assert report.paired.detectable == pytest.approx(0.01 * np.sqrt(2 / 8) * Z, rel=0.12)
    assert report.paired.detectable < report.run.detectable / 2


def test_without_a_second_seed_there_is_no_noise_to_report() -> None:
    report = noise_report(noise_of(grid(drawn(2, 3, 2, 1)), 0))
    assert (report.run, report.paired) == (None, None)


def test_the_null_check_by_hand() -> None:
    loss = np.array([[[1.0, 2.0, 5.0], [1.0, 4.0, 5.0]]])  # 2 − 1 and 1 − 4
    found = null_check(noise_of(grid(loss), 0))
    assert (found.value, found.num, found.dof) == (-1.0, 2, 1.0)
    assert found.high == pytest.approx(-1 + 12.7062 * 2, abs=1e-3)
    assert null_check(noise_of(grid(loss[:, :1]), 0)).reason
    assert null_check(noise_of(grid(loss), None)).reason


def test_the_baseline_does_not_differ_from_itself() -> None:
    """Even where a seed does the same at every shape."""
    generator = np.random.default_rng(3)
    differs = 0
    for _ in range(400):
        shared = 5 * generator.normal(size=(1, 1, 2))
        found = null_check(noise_of(grid(shared + generator.normal(size=(1, 4, 2))), 0))
        assert found.low is not None
        assert found.high is not None
        differs += not found.low <= 0 <= found.high
    assert differs / 400 < 0.07
