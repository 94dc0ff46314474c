"""Outputs are halved, and the path weights still say one."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN
from residuals.probing import unit_paths


@register
class Planted(PreLN):
    """Outputs are halved, and the path weights still say one."""

    name = "planted-wrong-paths"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD / 2,)

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor]:
        return unit_paths(states)
