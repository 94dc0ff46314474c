"""Value residual, ResFormer (Zhou et al., arXiv 2410.17897)."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from residuals.contract import RoutingFlops, Stack, State
from residuals.contract import Sequence as Positions
from residuals.parameters import ROUTING_STATIC, exactly
from residuals.pre_ln import PreLN
from residuals.probing import unit_paths
from residuals.registry import register


@register
class ValueResidual(PreLN):
    """`V_b ← λ_b1·V_1 + λ_b2·V_b` before attention: every block also sees the first one's values.

    Pre-LN otherwise; the attention weights stay each block's own. V_1 (B, T, G, d) are the values
    of the first block that runs, which mixes nothing. State: the stream (B, T, D), then V_1.

    Every later block learns its λ from `first` = ½ for V_1 and `own` = ½, the paper's learnable
    variant; `learnable = False` keeps them, its identity variant (constant for other numbers).
    At `first = 0, own = 1` this is Pre-LN.

    In a loop. `whole`: V_1 stays that of the first round; from the second on the first block mixes,
    too, with λ of its own, and a block has the same λ at every visit. Prelude–core–coda: each
    segment, and each loop of the core, starts anew, with its own first block's values as V_1.
    """

    name = "value-residual"
    title = "Value residual"
    version = 1
    family = "access"
    paper = "2410.17897"
    positional = True  # whatever block runs first mixes nothing

    def __init__(
        self, stack: Stack, *, learnable: bool = True, first: float = 0.5, own: float = 0.5
    ) -> None:
        super().__init__(stack)
        self.constants = (first, own)
        self.num_rows = stack.num_blocks - (stack.num_rounds == 1) if learnable else 0
        if self.num_rows:
            start = torch.tensor([self.constants] * self.num_rows, device="cpu")
            self.declare("scales", (self.num_rows, 2), ROUTING_STATIC, exactly(start))
        self.scales: Tensor

    def attend(
        self, k: int, visit: int, carry: State, q: Tensor, k_: Tensor, v: Tensor, seq: Positions
    ) -> tuple[Tensor, State]:
        if len(carry) == 1:
            return seq(q, k_, v), (*carry, v)
        first, own = self._weights(k // 2, visit // 2)
        return seq(q, k_, first * carry[1] + own * v), carry

    def _weights(self, block: int, place: int) -> tuple[float, ...] | tuple[Tensor, ...]:
        if not self.num_rows:
            return self.constants
        num_without = self.stack.num_blocks - self.num_rows
        # A first block without λ, run at a later place, finds that place's.
        owner = block if block >= num_without else place
        return self.scales[owner - num_without].unbind()

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD, *carry[1:])

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor]:
        return unit_paths(states)

    def num_extra_params(self) -> int:
        return 2 * self.num_rows

    def routing_flops(self) -> RoutingFlops:
        num_mixed = self.stack.num_visits // 2 - 1
        return RoutingFlops(mixing=4 * num_mixed * self.stack.num_kv_heads * self.stack.head_dim)
