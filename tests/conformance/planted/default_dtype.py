"""A write changes the type of all new tensors."""

import torch
from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """A write changes the type of all new tensors."""

    name = "planted-default-dtype"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        torch.set_default_dtype(torch.float64)
        return (carry[0] + y_BTD,)
