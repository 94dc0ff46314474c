"""A gate's squashing is computed in whatever type autocast gives."""

from torch import Tensor
from torch.nn import functional as F

from residuals import ROUTING_DYNAMIC, RoutingFlops, Stack, State, register
from residuals.parameters import truncated_normal
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """A gate's squashing is computed in whatever type autocast gives."""

    name = "planted-bf16-coefficients"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.declare("gate", (1, stack.d_model), ROUTING_DYNAMIC, truncated_normal(0.02))
        self.gate: Tensor

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + F.linear(carry[0], self.gate).sigmoid() * y_BTD,)

    def path_weights(self, states: object) -> None:
        return None

    def num_extra_params(self) -> int:
        return self.stack.d_model

    def routing_flops(self) -> RoutingFlops:
        return RoutingFlops(matmul=2 * self.stack.num_visits * self.stack.d_model)
