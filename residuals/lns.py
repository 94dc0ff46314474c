"""LayerNorm Scaling (arXiv 2502.05795, equation 5)."""

from math import sqrt

from torch import Tensor

from residuals.contract import State
from residuals.pre_ln import PreLN
from residuals.registry import register


@register
class LNS(PreLN):
    """`x ← x + F(N(x)/√b)`, b = 1…K the block: later branches read a smaller input.

    The factor is a fixed number, the same for both sublayers of a block. The final norm is not
    scaled. Not to be combined with depth-scaled output initialisation.

    In a loop b counts executed blocks, and a block has another factor at every visit: 1…K·R in the
    `whole` layout; in prelude–core–coda it goes on through the segments and the loops of the core.
    """

    name = "lns"
    title = "LNS"
    version = 1
    family = "norm"
    paper = "2502.05795"

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return self.norms[k](state[0]) / sqrt((self.stack.first_visit + visit) // 2 + 1), state
