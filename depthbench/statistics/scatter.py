"""Sums of squares of losses, and the designs and shapes that scatter more than the others."""

from collections.abc import Sequence

import numpy as np
from scipy import special

from depthbench.statistics.grid import Array

SCREEN, STRICT_SCREEN = 0.05, 0.001
LEAST_REST = 10  # degrees of freedom


def centred(values: Array) -> Array:
    """Minus the mean over the last axis; alone in it, a value tells nothing and is left out."""
    num = np.isfinite(values).sum(-1, keepdims=True)
    mean = np.nansum(values, -1, keepdims=True) / np.maximum(num, 1)
    return np.where(num > 1, values - mean, np.nan)


def within_dof(values: Array) -> int:
    return int(np.maximum(np.isfinite(values).sum(-1) - 1, 0).sum())


def squares_of(loss_DSR: Array) -> tuple[Array, Array]:
    """Sum of squares and degrees of freedom of the two-way residuals at every shape."""
    residuals, dof = two_way(loss_DSR)
    return np.nansum(residuals**2, axis=(0, 2)), dof


def two_way(loss_DSR: Array) -> tuple[Array, Array]:
    """Residuals of `design + seed` at every shape, and their degrees of freedom."""
    D, S, R = loss_DSR.shape
    if np.isfinite(loss_DSR).all() and loss_DSR.size:
        by_design, by_seed = loss_DSR.mean(2, keepdims=True), loss_DSR.mean(0, keepdims=True)
        overall = by_seed.mean(2, keepdims=True)
        return loss_DSR - by_design - by_seed + overall, np.full(S, float((D - 1) * (R - 1)))
    residuals, dof = np.full(loss_DSR.shape, np.nan), np.zeros(S)
    for shape in range(S):
        design, seed = np.nonzero(np.isfinite(loss_DSR[:, shape]))
        if design.size:
            effects = np.hstack([np.eye(D)[design], np.eye(R)[seed]])
            values = loss_DSR[design, shape, seed]
            values = values - values.mean()  # leaves no rounding of the mean loss in the residuals
            fitted, _, rank, _ = np.linalg.lstsq(effects, values, rcond=None)
            dof[shape] = design.size - rank
            if dof[shape]:
                residuals[design, shape, seed] = values - effects @ fitted
    return residuals, dof


def designs_apart(loss_DSR: Array) -> frozenset[int]:
    """Designs that scatter more than the rest, the loudest first, until none does."""
    even_DSR = _evened(loss_DSR)
    pooled = list(range(len(loss_DSR)))
    while len(pooled) > 2:
        total, dof = (part.sum() for part in squares_of(even_DSR[pooled]))
        parts = []
        for design in pooled:
            rest, rest_dof = squares_of(even_DSR[[d for d in pooled if d != design]])
            parts.append((float(total - rest.sum()), int(dof - rest_dof.sum())))
        loudest = _loudest(parts, float(total), int(dof))
        if loudest is None:
            break
        pooled.pop(loudest)
    return frozenset(range(len(loss_DSR))) - set(pooled)


def _evened(loss_DSR: Array) -> Array:
    """Losses whose loud shapes are scaled down, so that they do not make a design look loud."""
    squares, dof = squares_of(loss_DSR)
    alone = shapes_apart(loss_DSR)
    even = [s for s in range(len(squares)) if s not in alone]
    scale = np.ones(len(squares))
    scale[alone] = np.sqrt(squares[alone] / dof[alone] * dof[even].sum() / squares[even].sum())
    return loss_DSR / scale[:, None]


def shapes_apart(loss_DSR: Array) -> list[int]:
    """Shapes at which designs scatter more than at the rest, likewise."""
    squares, dof = squares_of(loss_DSR)
    even = list(range(len(squares)))
    alone: list[int] = []
    while len(even) > 1:
        parts = [(float(squares[s]), int(dof[s])) for s in even]
        loudest = _loudest(parts, float(squares[even].sum()), int(dof[even].sum()))
        if loudest is None:
            break
        alone.append(even.pop(loudest))
    return alone


def _loudest(parts: Sequence[tuple[float, int]], total: float, dof: int) -> int | None:
    """The part whose mean square most exceeds that of the rest, if an F test says so.

    Bonferroni over parts. Setting the loudest apart by chance leaves too low an estimate for the
    rest, the more so the fewer degrees of freedom it has: with few the test is stricter.
    """
    p = np.ones(len(parts))
    for place, (square, count) in enumerate(parts):
        rest, rest_dof = total - square, dof - count
        if count > 0 and rest_dof > 0 and rest > 0:
            level = SCREEN if rest_dof >= LEAST_REST else STRICT_SCREEN
            ratio = square / count * rest_dof / rest
            p[place] = special.fdtrc(count, rest_dof, ratio) * len(parts) / level
    loudest = int(np.argmin(p))
    return loudest if p[loudest] < 1 else None
