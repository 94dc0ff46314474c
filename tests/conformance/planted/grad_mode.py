"""Outputs are smaller where no gradients are kept."""

import torch
from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """Outputs are smaller where no gradients are kept."""

    name = "planted-grad-mode"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + (y_BTD if torch.is_grad_enabled() else 0.9 * y_BTD),)
