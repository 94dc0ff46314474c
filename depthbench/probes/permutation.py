"""Permutation score: what exchanging two blocks costs."""

from functools import partial

import torch

from depthbench.probes.executed import Executed
from depthbench.probes.late import late_fraction
from depthbench.probes.registry import Findings, probe


@probe(
    "permutation",
    title="Permutation score",
    definition=(
        "P(i, j) = |loss with blocks i and j exchanged − loss| / loss, all pairs; where a stack "
        "is run in parts, all pairs of one run of a part"
    ),
    unit="relative change of the loss",
    picture="pairs",
    axes=("block", "block"),
    scale=(0.0, 0.3),
    thresholds={"late": 0.15},
)
@torch.no_grad()
def permutation(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """The score of the pairs that one segment has, symmetric, and the late-pair fraction."""
    num, loss = stack.num_places, stack.loss(stack.points[-1])
    if len(stack.segments) == num > 1:
        return Findings(
            reason="no two blocks run on one state: a design does not say what should travel "
            "between two"
        )
    score: list[list[float | None]] = [[None] * num for _ in range(num)]
    for i in range(num):
        for j in filter(partial(stack.exchangeable, i), range(i + 1, num)):
            changed = stack.loss(stack.exchanged(i, j))
            score[i][j] = score[j][i] = abs(changed - loss) / loss
    return Findings({"score": score}, {"late": late_fraction(score, thresholds["late"])})
