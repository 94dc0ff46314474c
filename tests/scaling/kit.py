"""Synthetic runs of a known law, and the law written out anew."""

from collections.abc import Sequence

import numpy as np

from depthbench.scaling import Law, Runs

PAIRS = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 1), (8, 2), (8, 4), (8, 8)]
GOOD_FIVE = [(1, 1), (2, 2), (4, 2), (8, 1), (8, 8)]
BAD_FIVE = [(1, 1), (2, 1), (4, 1), (8, 1), (8, 8)]
FULL = [(1, 1), (2, 2), (4, 4), (8, 8)]
SHARE = 0.49
WIDTHS = np.geomspace(1e5, 3.2e6, 6)
BUDGETS = (5e5, 2e6, 8e6)
G = {
    "exponential": {"p": 0.237, "q": 1.022, "c": 1.06},
    "iso-depth": {"phi": 0.459},
    "free": {"g(2,1)": 0.9, "g(2,2)": 1.5, "g(4,2)": 1.7},
}


def law_of(form: str = "exponential", **changed: float) -> Law:
    """The iso-depth paper's α, β and E, both terms 1.3 nats at N = 1M and D = 2M."""
    g = {name: changed.pop(name, value) for name, value in G[form].items()}
    constants = {"E": 1.57, "alpha": 0.199, "beta": 0.369} | changed
    return Law(
        name="truth",
        title="The law of synthetic runs",
        kind="fitted",
        source="made up",
        A=1.3 * 1e6 ** constants["alpha"],
        B_D=1.3 * 2e6 ** constants["beta"],
        form=form,
        g=g,
        recurrent_share=SHARE,
        **constants,
    )


def runs_of(
    law: Law,
    pairs: Sequence[tuple[int, int]] = PAIRS,
    widths: Sequence[float] | np.ndarray = WIDTHS,
    budgets: Sequence[float] = BUDGETS,
    noise: float = 0.0,
    seed: int = 0,
    share: float = SHARE,
) -> Runs:
    """One run of every pair, width and token budget; `noise`: deviation of log loss."""
    designs = [
        ((1 - share) * N, share * N, T, B, D) for T, B in pairs for N in widths for D in budgets
    ]
    N_once, N_rec, T, B, D = np.array(designs, dtype=float).T
    error = np.random.default_rng(seed).standard_normal(len(D))
    return Runs(N_once, N_rec, T, B, D, law.loss(N_once, N_rec, T, B, D) * np.exp(noise * error))


def plain_g(T: float, B: float, p: float, q: float, c: float) -> float:
    """The exponential form as the paper writes it."""
    return float(np.exp(c * (1 - T ** (-p) * B ** (-q))))
