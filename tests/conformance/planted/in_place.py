"""The stream is added to in place."""

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """The stream is added to in place."""

    name = "planted-in-place"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0].add_(y_BTD),)
