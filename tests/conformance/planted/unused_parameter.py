"""One number is declared and used nowhere."""

from torch import Tensor

from residuals import ROUTING_STATIC, Stack, register
from residuals.parameters import constant
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """One number is declared and used nowhere."""

    name = "planted-unused-parameter"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.declare("idle", (1,), ROUTING_STATIC, constant(1.0))
        self.idle: Tensor

    def num_extra_params(self) -> int:
        return 1
