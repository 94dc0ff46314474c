"""Logit lens: what the head would say if the stack ended early."""

import torch
from torch import Tensor
from torch.nn import functional as F

from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe

ROWS = 256  # tokens whose logits stand in memory at once
TOP = 5


@probe(
    "lens",
    title="Logit lens",
    definition=(
        "from the read-out of every depth state: cross-entropy to the next token, "
        "KL(final ‖ state), and overlap of the five likeliest tokens with the final ones"
    ),
    unit="nats per token; share",
)
@torch.no_grad()
def lens(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """The three measures for each of the E + 1 states; the last is the model itself."""
    head_VD, targets_N = stack.model.head.weight, stack.targets_BT.flatten()
    final_ND = stack.read_out(stack.num_places, stack.points[-1]).flatten(0, 1)
    found: dict[str, list[float]] = {"cross_entropy": [], "kl": [], "top5_overlap": []}
    for place, point in enumerate(stack.points):
        early_ND = stack.read_out(place, point).flatten(0, 1)
        chunks = (x.split(ROWS) for x in (early_ND, final_ND, targets_N))
        sums = [_compared(head_VD, *chunk) for chunk in zip(*chunks, strict=True)]
        for values, parts in zip(found.values(), zip(*sums, strict=True), strict=True):
            values.append(sum(parts) / len(targets_N))
    return Findings(found)


def _compared(
    head_VD: Tensor, early_ND: Tensor, final_ND: Tensor, targets_N: Tensor
) -> tuple[float, float, float]:
    """Sums over the rows of cross-entropy, divergence and overlap."""
    early, final = (F.log_softmax(F.linear(x, head_VD), -1) for x in (early_ND, final_ND))
    entropy = F.nll_loss(early, targets_N, reduction="sum").item()
    divergence = F.kl_div(early, final, reduction="sum", log_target=True).item()
    likeliest = early.topk(TOP).indices.unsqueeze(-1) == final.topk(TOP).indices.unsqueeze(-2)
    return entropy, divergence, likeliest.sum().item() / TOP
