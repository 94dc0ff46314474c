"""To exchange blocks also scales the state."""

from residuals import State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """To exchange blocks also scales the state."""

    name = "planted-exchange-scales"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def exchange(self, visit: int, other: int, state: State) -> State:
        return (1.1 * state[0],)
