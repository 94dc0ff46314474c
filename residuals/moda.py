"""MoDA, Mixture-of-Depths Attention (arXiv 2603.15619)."""

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from residuals.contract import Design, RoutingFlops, Stack, State
from residuals.contract import Sequence as Positions
from residuals.parameters import BASE_STD, ROUTING_DYNAMIC, Declared, truncated_normal
from residuals.probing import unit_paths
from residuals.registry import register
from residuals.slots import shared


def _slot(x_BTGd: Tensor) -> Tensor:
    """(B, T, G, 1, d), contiguous: every later block reads it, and strided reads take longer."""
    return shared(x_BTGd.unsqueeze(-2).contiguous())


class _SlotMap(Declared):
    """`d → 2·G·head_dim`: key and value that an MLP writes for later blocks."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.shape = (2, stack.num_kv_heads, stack.head_dim)
        num_rows = 2 * stack.num_kv_heads * stack.head_dim
        init = truncated_normal(BASE_STD)
        self.declare("weight", (num_rows, stack.d_model), ROUTING_DYNAMIC, init)
        self.weight: nn.Parameter

    def forward(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        slots = nn.functional.linear(x_BTD, self.weight).unflatten(-1, self.shape)
        key, value = slots.unbind(-3)
        return _slot(key), _slot(value)


@register
class MoDA(Design):
    """Pre-LN whose attention also sees, under the same softmax, what earlier blocks wrote here.

    From block 2 on a query attends to its block's causal keys and values and, at its own position
    only, to the slots of earlier blocks: each attention's own keys and values, and each MLP's from
    an extra map of its normed input. Depth logits see neither query nor key rotated, so they do
    not depend on the position; `depthbench_rope` rotates the query only. `post_norm` norms the
    branch output instead of its input: `x ← x + N(F(x))`.

    State: the stream (B, T, D), then key and value (B, T, G, 1, d) of every slot.

    In a loop a block writes at every visit, always with the same map. `whole`: later rounds see the
    slots of earlier ones, so the last block has a map, too; only the very last MLP writes nothing.
    Prelude–core–coda: each segment, and each loop of the core, starts without slots, and the last
    block of each has no map.
    """

    name = "moda"
    title = "MoDA"
    version = 1
    family = "access"
    paper = "2603.15619"
    positional = True  # the last place writes no slot

    def __init__(
        self, stack: Stack, *, depthbench_rope: bool = False, post_norm: bool = False
    ) -> None:
        super().__init__(stack)
        self.norms = stack.norms()
        # The last block's slot would have no reader, except in a further round.
        num_maps = stack.num_blocks - (stack.num_rounds == 1)
        self.maps = nn.ModuleList(_SlotMap(stack) for _ in range(num_maps))
        self.depthbench_rope = depthbench_rope
        self.post_norm = post_norm

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        x_BTD = state[0] if self.post_norm else self.norms[k](state[0])
        if k % 2 and k // 2 < len(self.maps) and visit < self.stack.num_visits - 1:
            return x_BTD, (*state, *self.maps[k // 2](x_BTD))
        return x_BTD, state

    def attend(
        self, k: int, visit: int, carry: State, q: Tensor, k_: Tensor, v: Tensor, seq: Positions
    ) -> tuple[Tensor, State]:
        slot = (_slot(k_), _slot(v))
        if len(carry) == 1:
            return seq(q, k_, v), (*carry, *slot)
        o = seq.joint(q, k_, v, carry[1::2], carry[2::2], self.depthbench_rope)
        return o, (*carry, *slot)

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        y_BTD = self.norms[k](y_BTD) if self.post_norm else y_BTD
        return (carry[0] + y_BTD, *carry[1:])

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor]:
        return unit_paths(states)

    def num_extra_params(self) -> int:
        width = 2 * self.stack.num_kv_heads * self.stack.head_dim
        return len(self.maps) * width * self.stack.d_model

    def routing_flops(self) -> RoutingFlops:
        blocks = self.stack.num_blocks * self.stack.num_rounds
        width = 2 * self.stack.num_kv_heads * self.stack.head_dim
        slots_read = sum(2 * b for b in range(blocks))
        return RoutingFlops(
            matmul=2 * (blocks - 1) * width * self.stack.d_model,
            mixing=4 * slots_read * self.stack.num_heads * self.stack.head_dim,
        )
