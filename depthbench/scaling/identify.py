"""Whether the runs of a design of experiment determine the constants of a law, and how well."""

from collections.abc import Iterator

import numpy as np

from depthbench.errors import InputError
from depthbench.scaling.forms import Array
from depthbench.scaling.objective import Objective
from depthbench.scaling.rows import Runs

SINGULAR = 1e-8
LARGE_DEVIATION = 0.3


def smallest_singular_value(jacobian: Array) -> float:
    """Of the Jacobian with every column scaled to length 1; a column of zeros stays."""
    return float(_scaled(jacobian)[2][-1])


def require_identified(objective: Objective, theta: Array | None = None) -> None:
    """An `InputError` that names the constants and what the runs do not vary.

    Without `theta` the question is put at a point in general position: what is singular by design
    is singular everywhere, and is so refused before any fit.
    """
    jacobian = objective.by_constants(_general_point(objective) if theta is None else theta)
    _, _, values, vectors = _scaled(jacobian)
    if len(jacobian) >= jacobian.shape[1] and values[-1] >= SINGULAR:
        return
    names = list(objective.constants(_general_point(objective)))
    if len(jacobian) < len(names):
        raise InputError(
            f"{len(jacobian)} runs cannot determine {len(names)} constants "
            f"({', '.join(names)}): add runs"
        )
    weights = np.abs(vectors[-1])
    involved = [name for name, w in zip(names, weights, strict=True) if w > 0.1 * weights.max()]
    reasons = list(_missing_variation(objective))
    raise InputError(
        f"these runs do not determine {', '.join(involved)}: the smallest singular value of the "
        f"column-scaled Jacobian is {values[-1]:.1e}, below {SINGULAR:.0e}. "
        + "; ".join(reasons or ["vary N, D, T and B independently of each other"])
    )


def relative_deviations(objective: Objective, theta: Array, noise: float) -> dict[str, float]:
    """Predicted standard deviation of each constant as a share of it.

    `noise` is the standard deviation of log loss. Infinite for a constant that is 0 or that the
    runs do not determine.
    """
    lengths, _, values, vectors = _scaled(objective.by_constants(theta))
    with np.errstate(divide="ignore", invalid="ignore"):
        deviations = noise * np.sqrt(np.sum((vectors / values[:, None]) ** 2, axis=0)) / lengths
    constants = objective.constants(theta)
    relative = {}
    for (name, value), deviation in zip(constants.items(), deviations, strict=True):
        known = value != 0 and np.isfinite(deviation)
        relative[name] = float(deviation / abs(value)) if known else float("inf")
    return relative


def _scaled(jacobian: Array) -> tuple[Array, Array, Array, Array]:
    """Lengths of the columns, and the singular value decomposition of the scaled Jacobian."""
    lengths = np.linalg.norm(jacobian, axis=0)
    scaled = jacobian / np.where(lengths > 0, lengths, 1.0)
    left, values, vectors = np.linalg.svd(scaled, full_matrices=False)
    return lengths, left, values, vectors


def _general_point(objective: Objective) -> Array:
    """Inside the box of starts, with no two constants at the same place of their ranges."""
    low, high = np.array(objective.box).T
    return np.asarray(low + (high - low) * np.linspace(0.3, 0.7, len(low)))


def _missing_variation(objective: Objective) -> Iterator[str]:
    runs: Runs = objective.runs
    pairs = runs.pairs
    if len(pairs) == 1:
        T, B = pairs[0]
        yield f"every run has T = {T}, B = {B}: add other T and B, among them (1, 1)"
    elif objective.form.kind == "exponential":
        if all(T == B for T, B in pairs):
            yield "every run has B = T, where only p + q acts: add runs with B < T"
        elif all(B == 1 for _, B in pairs):
            yield "every run has B = 1, where q does not act: add runs with B > 1"
        if len({*pairs, (1, 1)}) < 4 or len(pairs) < 4:
            shown = ", ".join(map(str, pairs))
            yield f"only {shown} were run: p, q and c need four distinct (T, B) with (1, 1)"
    elif (1, 1) not in pairs:
        yield "no run has T = B = 1, which is what g is measured against: add some"
    for name, column in (("D", runs.D), ("N_once + N_rec", runs.N_once + runs.N_rec)):
        if (num := len(np.unique(column))) < 3:
            yield f"{name} has {num} distinct value{'s' * (num > 1)}: add at least {3 - num} more"
