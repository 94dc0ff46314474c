"""The derivative of a root at zero, times zero."""

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """The derivative of a root at zero, times zero."""

    name = "planted-infinite-gradient"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD + 0.0 * (y_BTD - y_BTD).sqrt(),)
