"""Angular distance between depth states."""

import torch

from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe


@probe(
    "angular",
    title="Angular distance",
    definition="d(i, j) = mean over tokens of arccos(cos(z_i, z_j)) / π between depth states",
    unit="fraction of π",
    picture="pairs",
    axes=("state", "state"),
    scale=(0.0, 0.5),
)
def angular(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """Distance of all pairs of the E + 1 states, and the mean distance across one block."""
    units = [torch.nn.functional.normalize(z.double(), dim=-1, eps=0.0) for z in stack.z]
    num = len(units)
    distance = [[0.0] * num for _ in range(num)]
    for i in range(num):
        for j in range(i + 1, num):
            # Half-angle form: arccos would lose half the digits of a small angle.
            apart = (units[i] - units[j]).norm(dim=-1)
            angle = 2 * torch.atan2(apart, (units[i] + units[j]).norm(dim=-1))
            distance[i][j] = distance[j][i] = angle.mean().item() / torch.pi
    across = [distance[i][i + 1] for i in range(num - 1)]
    return Findings({"distance": distance, "across": across}, {"mean": sum(across) / len(across)})
