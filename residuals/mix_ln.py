"""Mix-LN (Li, Yin and Liu, arXiv 2412.13795)."""

from collections.abc import Iterator, Sequence
from math import floor

from torch import Tensor

from residuals.contract import Stack, State
from residuals.errors import DesignError
from residuals.post_ln import scaled_sum
from residuals.pre_ln import PreLN
from residuals.probing import unit_paths
from residuals.registry import register


@register
class MixLN(PreLN):
    """Post-LN in the first ⌊a·K⌋ of K blocks, `x ← N(x + F(x))`, Pre-LN in the rest.

    a is `post_share`, a quarter as in the paper; 0 is Pre-LN and 1 is Post-LN. The norm is the
    sublayer's own, RMSNorm, before it or after the sum; the final norm is kept. Where blocks are
    exchanged, each takes its kind along.

    In a loop the executed blocks count: the first ⌊a·N⌋ of N = K·R in the `whole` layout, so that a
    block may be Post-LN in an early round and Pre-LN, with the same gain, in a later one. In
    prelude–core–coda the count goes on through segments and loops alike.
    """

    name = "mix-ln"
    title = "Mix-LN"
    version = 1
    family = "norm"
    paper = "2412.13795"

    def __init__(self, stack: Stack, *, post_share: float = 0.25) -> None:
        if not 0 <= post_share <= 1:
            raise DesignError(f"post_share = {post_share} of design 'mix-ln': choose from 0 to 1")
        super().__init__(stack)
        # Rounded first: 0.29 · 100 is a little below 29.
        self.num_post = floor(round(post_share * (stack.num_executed // 2), 9))

    def _is_post(self, visit: int) -> bool:
        return (self.stack.first_visit + visit) // 2 < self.num_post

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return (state[0], state) if self._is_post(visit) else super().read(k, visit, state)

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        if self._is_post(visit):
            return (self.norms[k](scaled_sum(carry[0], 1.0, y_BTD)),)
        return super().write(k, visit, carry, y_BTD)

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor] | None:
        return None if self._is_post(0) else unit_paths(states)
