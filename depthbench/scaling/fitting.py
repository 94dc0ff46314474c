"""Fitting a law to runs: many starts, one polish, intervals by bootstrap."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares, minimize

from depthbench.errors import InputError
from depthbench.scaling.forms import Array, FormKind, form_over
from depthbench.scaling.identify import LARGE_DEVIATION, relative_deviations, require_identified
from depthbench.scaling.law import BASE, Law
from depthbench.scaling.objective import HUBER_DELTA, Objective
from depthbench.scaling.rows import Runs

if TYPE_CHECKING:
    from depthbench.data.progress import Progress

NUM_STARTS = 500
NUM_RESAMPLES = 200
_RESAMPLE_TOLERANCE = 1e-6  # far below the width of any interval
_OPTIONS = {"maxiter": 3000, "maxfun": 6000, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-6}


@dataclass(frozen=True)
class Worth:
    """g at one (T, B) of the runs, with the central 95 % of the bootstrap."""

    T: int
    B: int
    g: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Fit:
    """A fitted law and how far to trust it.

    `intervals`: central 95 % of the bootstrap, of constants by name; `deviations`: predicted
    relative standard deviations at the noise found; `residuals`: predicted minus observed log loss,
    [n]; `noise`: their standard deviation; `num_agreeing` of `num_starts` starts ended at the best
    value.
    """

    law: Law
    runs: Runs
    worths: tuple[Worth, ...]
    intervals: dict[str, tuple[float, float]]
    deviations: dict[str, float]
    residuals: Array
    noise: float
    num_starts: int
    num_agreeing: int
    num_resamples: int
    warnings: tuple[str, ...]


def fit(
    runs: Runs,
    form: FormKind = "exponential",
    num_starts: int = NUM_STARTS,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
    name: str = "fitted",
    source: str = "",
    progress: "Progress | None" = None,
) -> Fit:
    """The law of `form` that fits `runs` best. Raises `InputError` where they do not determine it.

    `seed` draws the starts and the resamples.
    """
    shape = form_over(form, runs.pairs)
    silent = [pair for pair in runs.pairs if not shape.covers(*pair)]
    if silent:
        raise InputError(
            f"the form {form} says nothing about (T, B) = {', '.join(map(str, silent))}, which "
            "were run: fit exponential or free, or leave these runs out"
        )
    objective = Objective(runs, shape)
    require_identified(objective)
    theta, num_agreeing = _best(objective, num_starts, np.random.default_rng(seed), progress)
    require_identified(objective, theta)
    residuals = objective.residuals(theta)
    freedom = max(1, len(runs) - len(theta))
    noise = float(np.sqrt(np.sum(residuals**2) / freedom))
    deviations = relative_deviations(objective, theta, noise)
    constants = objective.constants(theta)
    law = Law(
        name=name,
        title="Fitted to runs",
        kind="fitted",
        source=source,
        **{key: constants[key] for key in BASE},
        form=form,
        g={key: constants[key] for key in shape.names},
        recurrent_share=runs.recurrent_share or None,
        fitted_range=runs.ranges,
    )
    drawn = _resampled(objective, theta, num_resamples, np.random.default_rng([seed, 1]), progress)
    return Fit(
        law=law,
        runs=runs,
        worths=tuple(_worths(law, runs, drawn)),
        intervals={name: central(values) for name, values in drawn.items()},
        deviations=deviations,
        residuals=residuals,
        noise=noise,
        num_starts=num_starts,
        num_agreeing=num_agreeing,
        num_resamples=num_resamples,
        warnings=tuple(_warnings(objective, theta, deviations, num_agreeing, num_starts)),
    )


def _best(
    objective: Objective, num_starts: int, rng: np.random.Generator, progress: "Progress | None"
) -> tuple[Array, int]:
    """Parameters of the best end, polished, and how many starts ended as well."""
    low, high = np.array(objective.box).T
    values, best = np.empty(num_starts), None
    for index in range(num_starts):
        start = rng.uniform(low, high)
        end = minimize(
            objective, start, jac=True, method="L-BFGS-B", bounds=objective.bounds, options=_OPTIONS
        )
        values[index] = end.fun
        if best is None or end.fun < best.fun:
            best = end
        if progress is not None:
            progress("fit", index + 1, num_starts)
    assert best is not None, "a fit has at least one start"
    theta = _polished(objective, best.x)
    return theta, int(np.sum(values <= best.fun * 1.001 + 1e-6))


def _polished(objective: Objective, theta: Array, tolerance: float = 1e-12) -> Array:
    """Descends from `theta` by Gauss-Newton on the same Huber loss."""
    low, high = np.array(objective.bounds).T
    end = least_squares(
        objective.residuals,
        np.clip(theta, low, high),
        jac=lambda point: objective.predict(point)[1],
        bounds=(low, high),
        loss="huber",
        f_scale=HUBER_DELTA,
        x_scale="jac",
        xtol=tolerance,
        ftol=tolerance,
        gtol=tolerance,
        max_nfev=200,
    )
    return np.asarray(end.x)


def _resampled(
    objective: Objective,
    theta: Array,
    num_resamples: int,
    rng: np.random.Generator,
    progress: "Progress | None",
) -> dict[str, Array]:
    """Constants of the law fitted to resampled runs, each [num_resamples].

    What is drawn are designs within each (T, B), with all their seeds: whole (T, B) groups would
    leave most resamples singular, and the seeds of one design are not independent designs.
    """
    groups = _rows_by_pair(objective.runs)
    constants = objective.constants(theta)
    drawn: dict[str, Array] = {name: np.empty(num_resamples) for name in constants}
    for index in range(num_resamples):
        chosen = [group[i] for group in groups for i in rng.integers(len(group), size=len(group))]
        resample = Objective(objective.runs.take(np.concatenate(chosen)), objective.form)
        start = resample.theta(constants)
        fitted = resample.constants(_polished(resample, start, _RESAMPLE_TOLERANCE))
        for name, value in fitted.items():
            drawn[name][index] = value
        if progress is not None:
            progress("bootstrap", index + 1, num_resamples)
    return drawn if num_resamples else {}


def _rows_by_pair(runs: Runs) -> list[list[Array]]:
    """For every (T, B) the row numbers of each of its designs."""
    _, design_of_row = np.unique(runs.designs, axis=0, return_inverse=True)
    groups: dict[tuple[float, float], dict[int, list[int]]] = {}
    for row, design in enumerate(design_of_row.reshape(-1)):
        pair = float(runs.T[row]), float(runs.B[row])
        groups.setdefault(pair, {}).setdefault(int(design), []).append(row)
    return [[np.array(rows) for rows in designs.values()] for designs in groups.values()]


def central(values: Array) -> tuple[float, float]:
    """Ends of the central 95 %."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def _worths(law: Law, runs: Runs, drawn: dict[str, Array]) -> Iterator[Worth]:
    form = law.shape_of_g
    T, B = np.array(runs.pairs, dtype=float).T
    resampled = np.array([drawn[name] for name in form.names if name in drawn]).T
    g = np.exp([form.log_g(values, T, B)[0] for values in resampled])
    for index, pair in enumerate(runs.pairs):
        interval = central(g[:, index]) if len(g) else None
        yield Worth(*pair, float(law.g_at(*pair)), interval)


def _warnings(
    objective: Objective,
    theta: Array,
    deviations: dict[str, float],
    num_agreeing: int,
    num_starts: int,
) -> Iterator[str]:
    for name, deviation in deviations.items():
        if deviation > LARGE_DEVIATION:
            yield (
                f"{name} is hardly determined: predicted standard deviation "
                f"{deviation:.0%} of its value"
            )
    for name, value, (low, high) in zip(deviations, theta, objective.bounds, strict=True):
        if min(value - low, high - value) < 1e-6 * (high - low):
            yield f"{name} ended at the bound of its range: the runs do not hold it"
    if num_agreeing < num_starts / 20:
        yield f"only {num_agreeing} of {num_starts} starts came to the best fit: try more starts"
