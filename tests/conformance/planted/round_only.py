"""From its second round on the rule reads norms that are not there."""

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """From its second round on the rule reads norms that are not there."""

    name = "planted-round-only"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return self.norms[visit](state[0]), state
