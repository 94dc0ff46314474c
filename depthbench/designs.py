"""From a cell's shape and design reference to the design itself, without allocating anything."""

import torch

from depthbench.config import DesignRef, Shape
from residuals import Design, Stack, build


def stack_of(shape: Shape, norm_eps: float) -> Stack:
    """What a design needs to know of a shape."""
    return Stack(shape.layers, shape.d_model, shape.heads, shape.kv_heads, shape.head_dim, norm_eps)


def lay_out(design: DesignRef, shape: Shape, norm_eps: float) -> Design:
    """The design on the meta device: structure, formulas and rules, but no values yet."""
    with torch.device("meta"):
        return build(f"{design.name}@{design.version}", stack_of(shape, norm_eps), **design.options)
