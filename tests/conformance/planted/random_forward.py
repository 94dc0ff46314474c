"""A tenth of every output is dropped at random."""

import torch
from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """A tenth of every output is dropped at random."""

    name = "planted-random-forward"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD * (torch.rand_like(y_BTD) > 0.1),)
