"""Each output also holds a share of the token before it, which causality allows."""

import torch
from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """Each output also holds a share of the token before it, which causality allows."""

    name = "planted-cross-token"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        before_BTD = torch.cat((y_BTD[:, :1], y_BTD[:, :-1]), 1)
        return (carry[0] + y_BTD + 0.1 * before_BTD,)
