"""A scale is a parameter that was never declared."""

import torch
from torch import Tensor, nn

from residuals import Stack, State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """A scale is a parameter that was never declared."""

    name = "planted-no-role"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.scale = nn.Parameter(torch.ones(stack.num_sublayers))

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + self.scale[k] * y_BTD,)

    def num_extra_params(self) -> int:
        return self.stack.num_sublayers
