"""The second block cannot read sequences of one token."""

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """The second block cannot read sequences of one token."""

    name = "planted-read-raises"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        if k == 2 and state[0].shape[1] == 1:
            raise ValueError("one token is too few\nfor whatever it is")
        return super().read(k, visit, state)
