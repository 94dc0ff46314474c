"""Dead segment: leading blocks that do not read what their own group has written so far."""

from collections.abc import Sequence
from itertools import takewhile

import torch

from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe


@probe(
    "dead-segment",
    title="Dead segment",
    definition=(
        "number of leading blocks whose consumers give the running partial sum a mean weight "
        "below the threshold. Where a stack is run in parts, every run of a part begins sums of "
        "its own, and the leading blocks of all are added up"
    ),
    unit="blocks; weight",
    scale=(0.0, 1.0),
    thresholds={"dead": 0.05},
)
@torch.no_grad()
def dead_segment(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """Mean weight of the partial sum in each block's consumers that see one, and the count."""
    means: list[float | None] = []
    dead = 0
    for segment in stack.segments:
        seen: list[list[float]] = [[] for _ in segment.places]
        for visit, (state, _) in enumerate(stack.sublayers(segment)):
            weight_BT = segment.design.running_weight(visit, state)
            if weight_BT is not None:
                seen[visit // 2].append(weight_BT.double().mean().item())
        own = [sum(weights) / len(weights) if weights else None for weights in seen]
        dead += _leading(own, thresholds["dead"])
        means += own
    if all(mean is None for mean in means):
        return Findings(reason="the design keeps no running partial sum beside its sources")
    return Findings({"weight": means}, {"blocks": float(dead)})


def _leading(means: Sequence[float | None], threshold: float) -> int:
    """Blocks before the first that gives its partial sum the threshold or more."""
    return sum(1 for _ in takewhile(lambda mean: mean is None or mean < threshold, means))
