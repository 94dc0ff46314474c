"""What runs can and cannot tell."""

import numpy as np
import pytest

from depthbench.errors import InputError
from depthbench.scaling import Runs, fit
from depthbench.scaling.forms import form_over
from depthbench.scaling.identify import (
    relative_deviations,
    require_identified,
    smallest_singular_value,
)
from depthbench.scaling.objective import Objective
from tests.scaling.kit import BAD_FIVE, FULL, GOOD_FIVE, law_of, runs_of

LAPTOP = {"widths": np.geomspace(1e5, 1e6, 4), "budgets": [5e5, 1e6, 2e6]}


def objective_of(pairs, form="exponential", **how) -> Objective:
    law = law_of("iso-depth" if form == "free" else form)
    return Objective(runs_of(law, pairs, **(LAPTOP | how)), form_over(form, pairs))


def test_smallest_singular_value_by_hand() -> None:
    # Columns (3, 0) and (1, 1) at 45 degrees: the squared singular values are 1 ± cos 45°.
    found = smallest_singular_value(np.array([[3.0, 1.0], [0.0, 1.0]]))
    assert found == pytest.approx(np.sqrt(1 - np.sqrt(0.5)))
    assert smallest_singular_value(np.array([[1.0, 0.0], [1.0, 0.0]])) == 0.0


@pytest.mark.parametrize(
    ("pairs", "constants", "reason"),
    [
        ([*FULL, (16, 16)], "p, q", r"every run has B = T"),
        ([(1, 1), (2, 1), (4, 1), (8, 1)], "q", r"every run has B = 1"),
        ([(1, 1), (2, 2), (4, 2)], "p, q, c", r"four distinct \(T, B\)"),
        ([(1, 1), (8, 2)], "p, q, c", r"four distinct \(T, B\)"),
        ([(1, 1)], "", r"every run has T = 1, B = 1"),
        ([(4, 2)], "", r"every run has T = 4, B = 2"),
    ],
)
def test_singular_designs_are_refused(pairs, constants, reason) -> None:
    with pytest.raises(InputError, match=rf"do not determine {constants}.*{reason}"):
        require_identified(objective_of(pairs))


@pytest.mark.parametrize("form", ["exponential", "iso-depth", "free"])
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"budgets": [1e6]}, "D has 1 distinct value: add"),
        ({"budgets": [1e6, 2e6]}, "D has 2 distinct values: add at least 1 more"),
    ],
)
def test_too_few_token_budgets_are_refused(form, how, reason) -> None:
    pairs = GOOD_FIVE if form == "exponential" else FULL
    with pytest.raises(InputError, match=reason):
        require_identified(objective_of(pairs, form, **how))


def test_one_size_with_free_g_is_refused_and_refused_by_fit() -> None:
    runs = runs_of(law_of("iso-depth"), FULL, widths=[1e6], budgets=[5e5, 1e6, 2e6])
    with pytest.raises(InputError, match=r"N_once \+ N_rec has 1 distinct value"):
        fit(runs, "free", num_starts=1, num_resamples=0)


def test_a_singular_design_is_refused_before_any_start() -> None:
    def started(stage: str, done: int, total: int) -> None:
        raise AssertionError(f"{stage} has begun")

    with pytest.raises(InputError, match="do not determine p, q"):
        fit(runs_of(law_of(), FULL), num_starts=1, progress=started)


def test_fewer_runs_than_constants_are_refused() -> None:
    with pytest.raises(InputError, match="4 runs cannot determine 8 constants"):
        require_identified(objective_of(GOOD_FIVE[:4], widths=[1e6], budgets=[1e6]))


def test_a_good_five_and_a_useless_five() -> None:
    theta = law_of().constants
    good, bad = objective_of(GOOD_FIVE), objective_of(BAD_FIVE)
    require_identified(good)  # though N_once / N_rec never varies
    require_identified(bad)
    found = relative_deviations(good, good.theta(theta), 0.002)
    assert max(found[name] for name in "pqc") < 0.1
    assert relative_deviations(bad, bad.theta(theta), 0.002)["q"] == pytest.approx(3.3, abs=0.5)


def test_deviations_are_those_of_least_squares() -> None:
    objective = objective_of(GOOD_FIVE)
    constants = law_of().constants
    theta = objective.theta(constants)
    jacobian = objective.by_constants(theta)
    scale = np.array(list(constants.values()))
    relative = jacobian * scale
    expected = 0.003 * np.sqrt(np.diag(np.linalg.inv(relative.T @ relative)))
    found = relative_deviations(objective, theta, 0.003)
    assert list(found.values()) == pytest.approx(expected, rel=1e-6)


def test_a_constant_that_does_nothing_has_no_deviation() -> None:
    objective = objective_of([(1, 1), (2, 1), (4, 1), (8, 1)])
    found = relative_deviations(objective, objective.theta(law_of().constants), 0.002)
    assert found["q"] == float("inf")


def test_forms_refuse_runs_that_they_say_nothing_about() -> None:
    with pytest.raises(InputError, match=r"iso-depth says nothing about .*\(4, 2\), \(8, 1\)"):
        fit(runs_of(law_of(), GOOD_FIVE), "iso-depth", num_starts=1)


def test_plain_runs_determine_a_plain_law() -> None:
    runs: Runs = runs_of(law_of(), [(1, 1)])
    found = fit(runs, "free", num_starts=3, num_resamples=0)
    assert found.law.g == {}
    assert found.law.constants == pytest.approx(
        {name: law_of().constants[name] for name in ("E", "A", "alpha", "B_D", "beta")}, rel=1e-3
    )
