"""A constant of the instance, not a parameter, is drawn by Python's generator."""

import random

from torch import Tensor

from residuals import Stack, State, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """A constant of the instance, not a parameter, is drawn by Python's generator."""

    name = "planted-hidden-weight"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.share = random.random()

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + self.share * y_BTD,)
