"""A Python number is taken out of a tensor on the way."""

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """A Python number is taken out of a tensor on the way."""

    name = "planted-graph-break"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        if not y_BTD.is_meta and y_BTD.detach().abs().max().item() > 1e6:
            return carry
        return (carry[0] + y_BTD,)
