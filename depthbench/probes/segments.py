"""Dead segment: leading blocks that do not read what their own group has written so far."""

import torch

from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe


@probe(
    "dead-segment",
    title="Dead segment",
    definition=(
        "number of leading blocks whose consumers give the running partial sum a mean weight "
        "below the threshold"
    ),
    unit="blocks; weight",
    scale=(0.0, 1.0),
    thresholds={"dead": 0.05},
)
@torch.no_grad()
def dead_segment(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """Mean weight of the partial sum in each block's consumers that see one, and the count."""
    seen: list[list[float]] = [[] for _ in range(stack.num_places)]
    for visit, (state, _) in enumerate(stack.sublayers()):
        weight_BT = stack.design.running_weight(visit, state)
        if weight_BT is not None:
            seen[visit // 2].append(weight_BT.double().mean().item())
    means = [sum(weights) / len(weights) if weights else None for weights in seen]
    if all(mean is None for mean in means):
        return Findings(reason="the design keeps no running partial sum beside its sources")
    dead = 0
    for mean in means:
        if mean is not None and mean >= thresholds["dead"]:
            break
        dead += 1
    return Findings({"weight": means}, {"blocks": float(dead)})
