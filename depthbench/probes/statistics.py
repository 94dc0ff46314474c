"""Layer statistics: size and spread of sublayer outputs and of their gradients."""

import torch
from torch import Tensor

from depthbench.model.loss import summed_nll
from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe


@probe(
    "statistics",
    title="Layer statistics",
    definition=(
        "mean, variance, mean magnitude and root mean square of every sublayer's output, and of "
        "the gradient of the mean loss with respect to it"
    ),
    unit="activation; nats per activation",
)
def statistics(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """One number per executed sublayer and statistic."""
    model, design = stack.model, stack.design
    with torch.enable_grad():
        outputs: list[Tensor] = []
        # The weights may be frozen: the embedded tokens carry the graph.
        embedded = model.embedding(stack.tokens_BT).detach().requires_grad_()
        state = design.start(embedded)
        for place in range(stack.num_places):
            (_, attention), (state, mlp) = stack.halves(place, place, state)
            outputs += [attention, mlp]
        x_BTD = stack.read_out(stack.num_places, state)
        loss = summed_nll(x_BTD, model.head.weight, stack.targets_BT) / stack.targets_BT.numel()
        gradients = torch.autograd.grad(loss, outputs)
    values = {f"output_{name}": found for name, found in _moments(outputs).items()}
    values |= {f"gradient_{name}": found for name, found in _moments(gradients).items()}
    return Findings(values)


def _moments(tensors: list[Tensor] | tuple[Tensor, ...]) -> dict[str, list[float]]:
    wide = [tensor.detach().double() for tensor in tensors]
    return {
        "mean": [x.mean().item() for x in wide],
        "variance": [x.var(correction=0).item() for x in wide],
        "magnitude": [x.abs().mean().item() for x in wide],
        "rms": [x.square().mean().sqrt().item() for x in wide],
    }
