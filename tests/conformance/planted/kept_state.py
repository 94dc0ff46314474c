"""The mean size of the last batch's stream is kept."""

from torch import Tensor

from residuals import Stack, State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """The mean size of the last batch's stream is kept."""

    name = "planted-kept-state"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.last_size = 1.0

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD,)

    def finish(self, state: State) -> Tensor:
        if state[0].device.type != "meta":
            self.last_size = state[0].detach().abs().mean().item()
        return state[0]
