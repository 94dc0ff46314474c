"""A map is multiplied with every output, and counted half."""

from torch import Tensor
from torch.nn import functional as F

from residuals import ROUTING_DYNAMIC, RoutingFlops, Stack, State, register
from residuals.parameters import truncated_normal
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """A map is multiplied with every output, and counted half."""

    name = "planted-wrong-flops"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.declare("map", (stack.d_model, stack.d_model), ROUTING_DYNAMIC, truncated_normal(0.02))
        self.map: Tensor

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD + F.linear(y_BTD, self.map),)

    def num_extra_params(self) -> int:
        return self.stack.d_model**2

    def routing_flops(self) -> RoutingFlops:
        return RoutingFlops(matmul=self.stack.num_visits * self.stack.d_model**2)
