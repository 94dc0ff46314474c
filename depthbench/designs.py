"""From a cell's shape and design reference to the design itself, without allocating anything."""

from dataclasses import replace

import torch

import residuals
from depthbench.config import CoreLoop, DesignRef, Loop, Shape
from depthbench.errors import InputError
from residuals import Design, Stack, build


def stack_of(shape: Shape, norm_eps: float, num_rounds: int = 1) -> Stack:
    """What a design needs to know of a shape."""
    return Stack(
        *(shape.layers, shape.d_model, shape.heads, shape.kv_heads, shape.head_dim, norm_eps),
        num_rounds=num_rounds,
    )


def lay_out(design: DesignRef, shape: Shape, norm_eps: float, num_rounds: int = 1) -> Design:
    """The design on the meta device: structure, formulas and rules, but no values yet."""
    return _built(design, stack_of(shape, norm_eps, num_rounds))


def lay_out_parts(
    design: DesignRef, shape: Shape, norm_eps: float, loop: Loop | None
) -> dict[str, Design]:
    """The design of each part of the stack: `whole`, or `prelude`, the cores and `coda`.

    Parts without a block are left out. Raises `InputError` for a loop whose design has no loops.
    """
    if loop is not None and not residuals.get(f"{design.name}@{design.version}").can_loop:
        raise InputError(
            f"{design.name} declares that it cannot run in a loop (can_loop = False): take the "
            "loop away, or choose another design for it"
        )
    if not isinstance(loop, CoreLoop):
        return {"whole": lay_out(design, shape, norm_eps, loop.rounds if loop else 1)}
    core, whole = loop.core(shape.layers), stack_of(shape, norm_eps)
    times = loop.forward // loop.num_cores
    stacks = {"prelude": replace(whole, num_blocks=loop.prelude)}
    for place, name in enumerate(loop.core_names):
        first = 2 * (loop.prelude + core * place)
        stacks[name] = replace(whole, num_blocks=core, first_visit=first, restarts=times > 1)
    first = 2 * (loop.prelude + core * loop.forward)
    stacks["coda"] = replace(whole, num_blocks=loop.coda, first_visit=first)
    depth = 2 * loop.executed_blocks(shape.layers)
    return {
        name: _built(design, replace(stack, depth=depth))
        for name, stack in stacks.items()
        if stack.num_blocks
    }


def _built(design: DesignRef, stack: Stack) -> Design:
    with torch.device("meta"):
        return build(f"{design.name}@{design.version}", stack, **design.options)
