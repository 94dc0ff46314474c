"""The scale's rule draws from the global generator."""

import torch
from torch import Tensor

from residuals import ROUTING_STATIC, Stack, State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """The scale's rule draws from the global generator."""

    name = "planted-global-init"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        rows = stack.num_sublayers
        self.declare("scale", (rows,), ROUTING_STATIC, lambda shape, generator: torch.rand(shape))
        self.scale: Tensor

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + self.scale[k] * y_BTD,)

    def num_extra_params(self) -> int:
        return self.stack.num_sublayers
