"""Causal score: what a later block does differently when an earlier one is left out."""

import torch
from torch import Tensor

from depthbench.probes.executed import Executed
from depthbench.probes.late import late_fraction
from depthbench.probes.registry import Findings, probe


@probe(
    "causal",
    title="Causal score",
    definition=(
        "C(s, l) = mean over tokens of ‖u_l with block s left out − u_l‖ / ‖u_l‖, l > s; "
        "on depth states u_l = z_(l+1) − z_l, and on the block's summed branch outputs"
    ),
    unit="relative change",
    picture="pairs",
    axes=("block left out", "later block"),
    scale=(0.0, 1.0),
    thresholds={"late": 0.45, "copy": 0.0},
)
@torch.no_grad()
def causal(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """Both scores for all pairs s < l, and the late-pair fraction of each.

    With `copy` = 1 the reader after a block that is left out takes its newest source.
    """
    num = stack.num_places
    on_states: list[list[float | None]] = [[None] * num for _ in range(num)]
    on_outputs: list[list[float | None]] = [[None] * num for _ in range(num)]
    for s in range(num - 1):
        point = stack.skipped(s, bool(thresholds["copy"]))
        z = stack.depth_state(s + 1, point)
        for place, (after, output) in enumerate(stack.run(s + 1, point), s + 1):
            z_after = stack.depth_state(place + 1, after)
            change = stack.z[place + 1] - stack.z[place]
            on_states[s][place] = _relative(z_after - z, change)
            on_outputs[s][place] = _relative(output, stack.outputs[place])
            z = z_after
    return Findings(
        {"states": on_states, "outputs": on_outputs},
        {
            "late_states": late_fraction(on_states, thresholds["late"]),
            "late_outputs": late_fraction(on_outputs, thresholds["late"]),
        },
    )


def _relative(changed_BTD: Tensor, original_BTD: Tensor) -> float:
    """Mean over tokens of ‖changed − original‖ / ‖original‖; 0 where nothing stays nothing."""
    difference = torch.linalg.vector_norm(changed_BTD - original_BTD, dim=-1)
    size = torch.linalg.vector_norm(original_BTD, dim=-1)
    return torch.where(difference == 0, 0.0, difference / size).mean().item()
