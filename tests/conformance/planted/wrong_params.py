"""The formula forgets the scales."""

from torch import Tensor

from residuals import ROUTING_STATIC, Stack, State, register
from residuals.parameters import constant
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """The formula forgets the scales."""

    name = "planted-wrong-params"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.declare("scale", (stack.num_sublayers,), ROUTING_STATIC, constant(1.0))
        self.scale: Tensor

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + self.scale[k] * y_BTD,)
