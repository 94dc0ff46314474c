"""DeepNorm (Wang et al., arXiv 2203.00555, figure 2 and table 1 for decoders)."""

from math import sqrt

from residuals.contract import Stack
from residuals.errors import DesignError
from residuals.norms import LayerNorm
from residuals.parameters import BASE_STD
from residuals.post_ln import OuterNorm
from residuals.registry import register

BRANCH_ROLES = frozenset({"v", "o", "gate", "up", "down"})
"""The matrices that β scales: query, key, embedding and head keep their base initialisation."""


@register
class DeepNorm(OuterNorm):
    """`x ← LN(α·x + F(x))`, `α = (2K)^¼`, initial gain `β = (8K)^-¼` on V, O and the MLP.

    The norm is mean-centred with a gain and no bias. `init = "normal"` scales the base
    initialisation by β; `"xavier"` gives those matrices the paper's Xavier-normal variance instead.

    In a loop K counts executed blocks, in α and β: K·R in the `whole` layout; in prelude–core–coda
    all of the model, with the core's as often as it is run, with gradients or without, and every
    segment has the same α and β. β scales a shared matrix once; a sublayer keeps its norm.
    """

    name = "deepnorm"
    title = "DeepNorm"
    version = 1
    family = "norm"
    paper = "2203.00555"

    def __init__(self, stack: Stack, *, init: str = "normal") -> None:
        if init not in ("normal", "xavier"):
            raise DesignError(f"init = {init!r} of design 'deepnorm': choose 'normal' or 'xavier'")
        super().__init__(stack, LayerNorm, alpha=stack.num_executed**0.25)
        self.beta = (4 * stack.num_executed) ** -0.25
        self.xavier = init == "xavier"

    def init_gain(self, role: str, fan_in: int, fan_out: int) -> float:
        beta = self.beta if role in BRANCH_ROLES else 1.0
        return beta * (sqrt(2 / (fan_in + fan_out)) / BASE_STD if self.xavier else 1.0)
