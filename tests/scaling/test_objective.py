"""Value and gradients of the objective against slow independent ones."""

import numpy as np
import pytest

from depthbench.scaling.forms import form_named
from depthbench.scaling.objective import HUBER_DELTA, Objective
from tests.scaling.kit import FULL, G, law_of, runs_of

CELLS = {"exponential": [(1, 1), (2, 2), (4, 2), (8, 1)], "iso-depth": FULL}
CELLS["free"] = [(1, 1), (2, 1), (2, 2), (4, 2)]


def objective_of(form: str, noise: float = 2e-3) -> Objective:
    law = law_of(form)
    runs = runs_of(law, CELLS[form], widths=[1e5, 4e5, 2e6], budgets=[5e5, 3e6], noise=noise)
    return Objective(runs, form_named(form, tuple(law.g)))


def by_differences(function, point, step=1e-6):
    columns = []
    for index in range(len(point)):
        shift = np.zeros(len(point))
        shift[index] = step * max(1.0, abs(point[index]))
        ends = function(point + shift), function(point - shift)
        columns.append((np.asarray(ends[0]) - np.asarray(ends[1])) / (2 * shift[index]))
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize("form", G)
def test_prediction_is_the_law(form) -> None:
    objective, law = objective_of(form, noise=0.0), law_of(form)
    theta = objective.theta(law.constants)
    assert np.exp(objective.predict(theta)[0]) == pytest.approx(objective.runs.loss, rel=1e-12)
    assert objective.constants(theta) == pytest.approx(law.constants, rel=1e-12)
    assert objective(theta)[0] == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("form", G)
@pytest.mark.parametrize("seed", range(4))
def test_gradients_against_finite_differences(form, seed) -> None:
    objective = objective_of(form)
    low, high = np.array(objective.box).T
    theta = np.random.default_rng(seed).uniform(low, high)
    value, gradient = objective(theta)
    numeric = by_differences(lambda point: objective(point)[0], theta)
    assert gradient == pytest.approx(numeric, rel=1e-5, abs=1e-5 * np.abs(gradient).max())
    jacobian = by_differences(lambda point: objective.predict(point)[0], theta)
    assert objective.predict(theta)[1] == pytest.approx(jacobian, rel=1e-5, abs=1e-8)
    assert value > 0


def test_huber_is_quadratic_within_delta_and_linear_beyond() -> None:
    objective = objective_of("exponential")
    theta = objective.theta(law_of().constants)
    total, within = 0.0, 0
    for residual in objective.residuals(theta):
        if abs(residual) <= HUBER_DELTA:
            total, within = total + residual**2 / 2, within + 1
        else:
            total += HUBER_DELTA * (abs(residual) - HUBER_DELTA / 2)
    mean = total / len(objective.runs) / HUBER_DELTA**2
    assert 0 < within < len(objective.runs)
    assert objective(theta)[0] == pytest.approx(mean, rel=1e-12)
    smooth = by_differences(lambda point: objective(point)[0], theta, 1e-8)
    assert objective(theta)[1] == pytest.approx(smooth, rel=1e-3)


@pytest.mark.parametrize("form", G)
def test_jacobian_by_constants_is_that_of_the_law(form) -> None:
    objective, law = objective_of(form), law_of(form)
    runs, names = objective.runs, list(law.constants)

    def log_loss(values):
        found = dict(zip(names, values, strict=True))
        g = {name: found.pop(name) for name in law.g}
        changed = law.model_copy(update=found | {"g": g})
        return np.log(changed.loss(runs.N_once, runs.N_rec, runs.T, runs.B, runs.D))

    values = np.array(list(law.constants.values()))
    numeric = by_differences(log_loss, values)
    exact = objective.by_constants(objective.theta(law.constants))
    assert exact == pytest.approx(numeric, rel=1e-4, abs=1e-9)
