"""Each output loses the mean over the sequences of the batch."""

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """Each output loses the mean over the sequences of the batch."""

    name = "planted-cross-sequence"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD - 0.1 * y_BTD.mean(0, keepdim=True),)
