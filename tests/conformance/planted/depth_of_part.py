"""The depth that only parts of a looped stack know is taken for the depth."""

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """The depth that only parts of a looped stack know is taken for the depth."""

    name = "planted-depth-of-part"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD / (1 + self.stack.depth),)
