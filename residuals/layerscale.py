"""LayerScale (Touvron et al., arXiv 2103.17239, equation 4) and ReZero (Bachlechner et al.,
arXiv 2003.04887, equation 1): learned scales on what a sublayer adds.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from residuals.contract import Design, RoutingFlops, Stack, State
from residuals.parameters import ROUTING_STATIC, constant
from residuals.registry import register


class ScaledBranches(Design):
    """`x ← x + s_k∘y`: row k of `scales` (L, width), one value a channel or one for all."""

    family = "norm"
    version = 1

    def __init__(self, stack: Stack, width: int, start: float) -> None:
        super().__init__(stack)
        self.declare("scales", (stack.num_sublayers, width), ROUTING_STATIC, constant(start))
        self.scales: Tensor

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (torch.addcmul(carry[0], self.scales[k], y_BTD),)

    def routing_flops(self) -> RoutingFlops:
        return RoutingFlops(mixing=self.stack.num_visits * self.stack.d_model)


@register
class LayerScale(ScaledBranches):
    """`x ← x + γ_k∘F(N(x))`: Pre-LN with a learned gain on every channel of a branch's output.

    γ starts at `start`, or at the paper's value for the depth: 0.1 up to 18 blocks, 1e-5 up to 24
    and 1e-6 beyond (it gives 24 for the second; we take all from 19 on). At 1 this is Pre-LN.

    In a loop a sublayer has the same gain at every visit, and the depth that fixes its start is the
    number of blocks executed: K·R in the `whole` layout, those of all segments, with the core's as
    often as it is run, in prelude–core–coda.
    """

    name = "layerscale"
    title = "LayerScale"
    paper = "2103.17239"

    def __init__(self, stack: Stack, *, start: float = 0.0) -> None:
        num_blocks = stack.num_executed // 2
        by_depth = 0.1 if num_blocks <= 18 else 1e-5 if num_blocks <= 24 else 1e-6
        super().__init__(stack, stack.d_model, start or by_depth)
        self.norms = stack.norms()

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return self.norms[k](state[0]), state

    def num_extra_params(self) -> int:
        return self.stack.num_sublayers * self.stack.d_model


@register
class ReZero(ScaledBranches):
    """`x ← x + α_k·F(x)`: no norm but the final one, and one learned scalar that starts at zero.

    At the start the stack is the identity. Every matrix in it then has a gradient of zero, and only
    the scalars move in the first step.

    In a loop a sublayer has the same scalar at every visit; nothing depends on the depth. In
    prelude–core–coda the stack starts as the injection and the norms between the segments.
    """

    name = "rezero"
    title = "ReZero"
    paper = "2003.04887"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, 1, 0.0)

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return state[0], state

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor]:
        B, T = states[0][0].shape[:2]
        scales_L = self.scales.squeeze(-1).to(states[0][0].dtype)
        rounds_V = scales_L.repeat(self.stack.num_rounds)
        weights_S = torch.cat((rounds_V.new_ones(1), rounds_V))
        for visit in range(len(states)):
            yield weights_S[: 1 + visit, None, None].expand(-1, B, T)

    def num_extra_params(self) -> int:
        return self.stack.num_sublayers * (1 - self.stack.d_model)
