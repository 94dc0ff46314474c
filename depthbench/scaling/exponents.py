"""How the best number of loops grows with compute when the model cannot."""

from dataclasses import dataclass

import numpy as np

from depthbench.errors import InputError
from depthbench.scaling.planner import Planner

_LEAST, _MOST = 2.0, 16.0  # T* between which the slope is taken
_NUM_BUDGETS = 200
_GRID = 4001
_STEP = 1e-4


@dataclass(frozen=True)
class Growth:
    """Exponents of compute: T* ∝ C^loops and D* ∝ C^tokens."""

    loops: float
    tokens: float


def growth_at_fixed_size(planner: Planner) -> Growth:
    """Least-squares slopes over evenly spaced ln C, B = T real, N and share fixed, 2 ≤ T* ≤ 16.

    Where T is best, ln C is a closed function of T: the derivatives of the two terms of
    `A·(N·m)^(−α) + B_D·(6·N·k/C)^β` by ln T are equal. N only shifts ln C. Raises `InputError`
    where the law has no best T or says nothing about it.
    """
    law, share = planner.law, planner.share
    log_T = np.linspace(np.log(_LEAST), np.log(_MOST), _GRID)
    T = np.exp(log_T)
    g = law.g_at(T, T)
    upper, lower = np.exp(log_T + _STEP), np.exp(log_T - _STEP)
    rise_of_g = (law.g_at(upper, upper) - law.g_at(lower, lower)) / (2 * _STEP)
    worth, cost = 1 - share + share * g, 1 - share + share * T
    rises = share * rise_of_g / worth, share * T / cost
    if np.any(rises[0] <= 0):
        raise InputError(f"{law.name}: more loops do not lower the loss, so that none is best")
    terms = law.alpha * law.A * worth**-law.alpha * rises[0], law.beta * law.B_D * rises[1]
    log_C = np.log(cost) + np.log(terms[1] / terms[0]) / law.beta
    if np.any(np.diff(log_C) <= 0):
        raise InputError(f"{law.name}: the best number of loops does not grow with compute")
    budgets = np.linspace(log_C[0], log_C[-1], _NUM_BUDGETS)
    best = np.interp(budgets, log_C, log_T)
    spent = budgets - np.log(1 - share + share * np.exp(best))
    return Growth(_slope(budgets, best), _slope(budgets, spent))


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(x - x.mean(), y, 1)[0])
