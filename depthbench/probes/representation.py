"""Representation: how many directions the token states of a depth use."""

import torch

from depthbench.probes.executed import Executed
from depthbench.probes.ranks import effective_rank, stable_rank
from depthbench.probes.registry import Findings, probe


@probe(
    "representation",
    title="Representation rank",
    definition="stable and effective rank of the tokens × width matrix of every depth state",
    unit="rank",
)
@torch.no_grad()
def representation(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """Both ranks for each of the E + 1 states."""
    states = [z.flatten(0, 1) for z in stack.z]
    effective = [effective_rank(z_ND).item() for z_ND in states]
    stable = [stable_rank(z_ND).item() for z_ND in states]
    return Findings(
        {"effective_rank": effective, "stable_rank": stable}, {"effective_rank": effective[-1]}
    )
