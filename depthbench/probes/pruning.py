"""Layer pruning: what one block is worth."""

import torch

from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe


@probe(
    "pruning",
    title="Layer pruning",
    definition="increase of the loss with one block left out",
    unit="nats per token",
)
@torch.no_grad()
def pruning(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """The increase for each place."""
    loss = stack.loss(stack.points[-1])
    increase = [
        stack.loss(stack.end(place + 1, stack.skipped(place))) - loss
        for place in range(stack.num_places)
    ]
    return Findings({"increase": increase}, {"least": min(increase), "most": max(increase)})
