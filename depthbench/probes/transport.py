"""Residual transport: how much of the streams' difference survives their mixing."""

import torch
from torch.nn import functional as F

from depthbench.probes.executed import Executed
from depthbench.probes.ranks import effective_rank
from depthbench.probes.registry import Findings, probe


@probe(
    "transport",
    title="Residual transport",
    definition=(
        "effective rank exp(H(σ/Σσ)) of the product of all mixings up to a sublayer, per token "
        "and averaged; mean absolute cosine between different streams before it"
    ),
    unit="rank, 1 … number of streams; cosine",
)
@torch.no_grad()
def transport(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """Rank after each sublayer and cosine before it."""
    ranks, cosines, product = list[float](), list[float | None](), None
    num_sublayers = stack.design.stack.num_sublayers
    for visit, (state, _) in enumerate(stack.sublayers()):
        mixing = stack.design.mixing(visit % num_sublayers, visit, state)
        streams = stack.design.streams_of(state)
        if mixing is None or streams is None:
            return Findings(reason="the design has one residual stream and nothing to mix")
        product = mixing.double() if product is None else mixing.double() @ product
        ranks.append(effective_rank(product).mean().item())
        unit = F.normalize(streams.double(), dim=-1)
        cosine = (unit @ unit.mT).abs()
        m = cosine.shape[-1]
        off_diagonal = cosine.sum((-2, -1)) - cosine.diagonal(dim1=-2, dim2=-1).sum(-1)
        cosines.append(off_diagonal.mean().item() / (m * (m - 1)) if m > 1 else None)
    return Findings(
        {"effective_rank": ranks, "cosine": cosines},
        {"effective_rank": ranks[-1], "cosine": cosines[-1]},
    )
