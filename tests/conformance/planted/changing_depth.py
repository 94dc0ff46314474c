"""Depth states get wider from depth to depth."""

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """Depth states get wider from depth to depth."""

    name = "planted-changing-depth"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def depth_state(self, visit: int, state: State) -> Tensor:
        return state[0][..., : 8 + visit]
