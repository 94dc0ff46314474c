"""Compiling the parts of a block whose code all blocks share."""

from collections.abc import Callable
from typing import Any

from torch import nn

from depthbench.model.layers import MLP
from residuals.norms import LayerNorm, RMSNorm

SHARED = (RMSNorm, LayerNorm, MLP)


def compile_parts(model: nn.Module, backend: str | Callable[..., Any] = "inductor") -> None:
    """Compiles norms and MLPs one by one.

    Whole blocks would be compiled anew for each: their place is a number that designs compare, and
    the state of some grows from block to block. What is compiled here has one code for all blocks,
    so that a stack of any depth compiles each once. Projections and attention are one kernel each.
    """
    for module in model.modules():
        if isinstance(module, SHARED):
            module.compile(dynamic=False, backend=backend)
