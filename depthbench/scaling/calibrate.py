"""The constants of `truncate-or-not/calibrated`, from what the paper states.

The paper publishes p and q of `g = exp[c·(1 − T^(−p)·B^(−q))]` but not c, nor the share of
parameters that its models loop. At equal optimised loss compute goes as k/m and parameters as 1/m
(see `planner`), so that two of its statements give both; how its best T grows at fixed size then
gives β.
"""

from scipy.optimize import brentq

from depthbench.scaling.exponents import growth_at_fixed_size
from depthbench.scaling.law import Law
from depthbench.scaling.planner import Planner

P, Q = 0.237, 1.022  # published
TRUNCATION_SAVING = 0.34  # of (8, 2) against (8, 8)
PARAMETER_SAVING = 0.295  # of (2, 2) against no loop: the middle of 27 to 32 %
LOOP_EXPONENT = 0.24
STAND_IN_E, STAND_IN_ALPHA = 1.57, 0.199  # of the iso-depth paper
LEVEL, LEVEL_N, LEVEL_D = 1.3, 1e6, 2e6  # both terms of the loss at a laptop's size


def calibrated() -> Law:
    """Solves for share, c and β; E and α are stand-ins, A and B_D a convention."""
    c = brentq(lambda c: _truncation_saving(c) - TRUNCATION_SAVING, 0.9, 1.3, xtol=1e-12)
    share = _share(c)
    beta = brentq(
        lambda beta: growth_at_fixed_size(Planner(_law(c, share, beta))).loops - LOOP_EXPONENT,
        0.2,
        0.8,
        xtol=1e-12,
    )
    return _law(c, share, beta)


def _share(c: float) -> float:
    """The share at which (2, 2) saves the published parameters: m = 1 / (1 − saving)."""
    g = float(_law(c, 1.0, 0.4).g_at(2, 2))
    return (1 / (1 - PARAMETER_SAVING) - 1) / (g - 1)


def _truncation_saving(c: float) -> float:
    return 1 - Planner(_law(c, _share(c), 0.4)).relative_compute((8, 2), (8, 8))


def level_constants(alpha: float, beta: float) -> tuple[float, float]:
    """A and B_D that make both terms `LEVEL` nats at `LEVEL_N` parameters and `LEVEL_D` tokens."""
    return LEVEL * LEVEL_N**alpha, LEVEL * LEVEL_D**beta


def _law(c: float, share: float, beta: float) -> Law:
    A, B_D = level_constants(STAND_IN_ALPHA, beta)
    return Law(
        name="truncate-or-not/calibrated",
        title="Truncate or Not?, calibrated to its published statements",
        kind="calibrated",
        source="arXiv 2610.26030",
        E=STAND_IN_E,
        A=A,
        alpha=STAND_IN_ALPHA,
        B_D=B_D,
        beta=beta,
        form="exponential",
        g={"p": P, "q": Q, "c": c},
        recurrent_share=share,
    )
