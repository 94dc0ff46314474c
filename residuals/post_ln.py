"""Post-LN, the original Transformer's order, as a control (Vaswani et al., arXiv 1706.03762)."""

from torch import Tensor

from residuals.contract import Design, RoutingFlops, Stack, State
from residuals.norms import LayerNorm, RMSNorm, at_least_fp32
from residuals.registry import register


class OuterNorm(Design):
    """`x ← N_out(α·x + F(x))`: what Post-LN and DeepNorm share. `α·x + F` and the norm are fp32."""

    def __init__(self, stack: Stack, kind: type[RMSNorm] | type[LayerNorm], alpha: float) -> None:
        super().__init__(stack)
        self.norms = stack.norms(kind=kind)
        self.alpha = alpha

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return state[0], state

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (self.norms[k](scaled_sum(carry[0], self.alpha, y_BTD)),)

    def num_extra_params(self) -> int:
        return 0

    def routing_flops(self) -> RoutingFlops:
        return RoutingFlops()


def scaled_sum(x_BTD: Tensor, alpha: float, y_BTD: Tensor) -> Tensor:
    """`α·x + y` in at least fp32: at α = 128 the spacing of bf16 is 1."""
    return at_least_fp32(y_BTD).add(at_least_fp32(x_BTD), alpha=alpha)


@register
class PostLN(OuterNorm):
    """`x ← N(x + F(x))`: the norm stands on the stream; the final norm before the head is kept."""

    name = "post-ln"
    title = "Post-LN"
    version = 1
    family = "norm"
    paper = "1706.03762"

    def __init__(self, stack: Stack, *, mean_centred: bool = False) -> None:
        super().__init__(stack, LayerNorm if mean_centred else RMSNorm, alpha=1.0)
