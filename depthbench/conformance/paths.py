"""What a design says of the paths between its sublayers, against what they read."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from depthbench.conformance.checks import NotAskedError, check, fail
from depthbench.conformance.probing import NEEDS, Run
from depthbench.conformance.subject import Subject
from depthbench.conformance.tiny import branch, relative
from residuals import Design, State
from residuals.norms import LayerNorm, RMSNorm


@check("path-weights", "path_weights", needs=NEEDS)
@torch.no_grad()
def path_weights(subject: Subject) -> str:
    """Do the path weights, where given, make up what each sublayer reads and what is read out?"""
    run = Run(subject)
    design = run.design
    states, sources, read = list[State](), [run.embedded], list[Tensor | None]()
    for visit, (state, output) in enumerate(run.sublayers()):
        states.append(state)
        with normed(design) as pairs:
            x, carry = design.read(visit, visit, state)
        read.append(pairs[-1][0] if pairs else None)
        _, carry = branch(run.model, visit, x, carry, run.seq)
        with normed(design) as pairs:
            design.write(visit, visit, carry, output)
        # Where a norm stands on the branch, its output is what joins the stream.
        sources.append(next((after for x, after in pairs if x is output), output))
    states.append(run.states[-1])
    read.append(design.finish(states[-1]))
    found = design.path_weights(states)
    if found is None:
        raise NotAskedError("the design gives no path weights")
    weights = list(found)
    if len(weights) != len(states):
        fail(f"{len(weights)} rows of weights for {len(states)} readers")
    for visit, (weights_SBT, wanted) in enumerate(zip(weights, read, strict=True)):
        if weights_SBT.shape != (1 + visit, 2, 5):
            shape = tuple(weights_SBT.shape)
            fail(f"weights at visit {visit} are {shape}, not (1 + visit, B, T)")
        total = (weights_SBT.unsqueeze(-1) * torch.stack(sources[: 1 + visit])).sum(0)
        off = 0.0 if wanted is None else relative(total, wanted)
        if not off <= 1e-8:
            fail(f"what visit {visit} reads is not the weighted sum, by {off:.2g}")
    return f"they make up the inputs of {len(states) - 1} sublayers and the read-out"


@contextmanager
def normed(design: Design) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Inputs and outputs of the design's norms, in the order in which they are called."""
    pairs: list[tuple[Tensor, Tensor]] = []
    norms = [m for m in design.modules() if isinstance(m, RMSNorm | LayerNorm)]
    hooks = [m.register_forward_hook(lambda _, x, y: pairs.append((x[0], y))) for m in norms]
    try:
        yield pairs
    finally:
        for hook in hooks:
            hook.remove()
