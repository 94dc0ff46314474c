"""Layer statistics: size and spread of sublayer outputs and of their gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor

from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe
from residuals import State


@probe(
    "statistics",
    title="Layer statistics",
    definition=(
        "mean, variance, mean magnitude and root mean square of every sublayer's output, and of "
        "the gradient of the mean loss with respect to it, where training has one"
    ),
    unit="activation; nats per activation",
)
def statistics(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """One number per executed sublayer and statistic; None for a gradient that is cut off."""
    outputs: list[Tensor] = []

    def step(place: int, state: State) -> State:
        (_, attention), (after, mlp) = stack.halves(place, place, state)
        outputs.extend((attention, mlp))
        return after

    loss = stack.traced(step)
    carrying = [output for output in outputs if output.requires_grad]
    found = iter(torch.autograd.grad(loss, carrying, allow_unused=True))
    gradients = [next(found) if output.requires_grad else None for output in outputs]
    values = {f"output_{name}": moments for name, moments in _moments(outputs).items()}
    values |= {f"gradient_{name}": moments for name, moments in _moments(gradients).items()}
    return Findings(values)


def _moments(tensors: Sequence[Tensor | None]) -> dict[str, list[float | None]]:
    wide = [None if tensor is None else tensor.detach().double() for tensor in tensors]
    return {
        "mean": [None if x is None else x.mean().item() for x in wide],
        "variance": [None if x is None else x.var(correction=0).item() for x in wide],
        "magnitude": [None if x is None else x.abs().mean().item() for x in wide],
        "rms": [None if x is None else x.square().mean().sqrt().item() for x in wide],
    }
