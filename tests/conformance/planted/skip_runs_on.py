"""Sources are a list in the state, and a block left out leaves a hole in it."""

import torch
from torch import Tensor

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """Sources are a list in the state, and a block left out leaves a hole in it."""

    name = "planted-skip-runs-on"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def start(self, x_BTD: Tensor) -> State:
        return (x_BTD,)

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return self.norms[k](state[visit]), state

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (*carry, carry[visit] + y_BTD)

    def finish(self, state: State) -> Tensor:
        return torch.stack(state).mean(0)

    def depth_state(self, visit: int, state: State) -> Tensor:
        return state[visit]

    def path_weights(self, states: object) -> None:
        return None
