"""Residual transport: how much of the streams' difference survives their mixing."""

import torch
from torch import Tensor
from torch.nn import functional as F

from depthbench.probes.executed import Executed
from depthbench.probes.ranks import effective_rank
from depthbench.probes.registry import Findings, probe


@probe(
    "transport",
    title="Residual transport",
    definition=(
        "effective rank exp(H(σ/Σσ)) of the product of all mixings up to a sublayer, per token "
        "and averaged; mean absolute cosine between different streams before it. Where a stack is "
        "run in parts, the streams start anew in every run of a part, and so does the product"
    ),
    unit="rank, 1 … number of streams; cosine",
)
@torch.no_grad()
def transport(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """Rank after each sublayer and cosine before it.

    The summary is of each segment's last sublayer, a mean over the segments.
    """
    ranks, cosines = list[float](), list[float | None]()
    last_ranks, last_cosines = list[float](), list[float]()
    for segment in stack.segments:
        product: Tensor | None = None
        for visit, (state, _) in enumerate(stack.sublayers(segment)):
            k = visit % segment.design.stack.num_sublayers
            mixing = segment.design.mixing(k, visit, state)
            streams = segment.design.streams_of(state)
            if mixing is None or streams is None:
                return Findings(reason="the design has one residual stream and nothing to mix")
            product = mixing.double() if product is None else mixing.double() @ product
            ranks.append(effective_rank(product).mean().item())
            cosines.append(_cosine(streams))
        last_ranks.append(ranks[-1])
        last_cosines += [] if cosines[-1] is None else [cosines[-1]]
    return Findings(
        {"effective_rank": ranks, "cosine": cosines},
        {
            "effective_rank": sum(last_ranks) / len(last_ranks),
            "cosine": sum(last_cosines) / len(last_cosines) if last_cosines else None,
        },
    )


def _cosine(streams_BTMD: Tensor) -> float | None:
    """Mean absolute cosine between different streams, None if there is one."""
    m = streams_BTMD.shape[-2]
    if m == 1:
        return None
    unit = F.normalize(streams_BTMD.double(), dim=-1)
    cosine = (unit @ unit.mT).abs()
    off_diagonal = cosine.sum((-2, -1)) - cosine.diagonal(dim1=-2, dim2=-1).sum(-1)
    return off_diagonal.mean().item() / (m * (m - 1))
