"""Residual-path weights: how much of each sublayer's output a later sublayer reads."""

import torch

from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe


@probe(
    "paths",
    title="Residual-path weights",
    definition=(
        "explicit weight of the embedding (source 0) and of sublayer output i (source i) in the "
        "input of sublayer l before its norm, mean over tokens; the last row is the read-out"
    ),
    unit="weight",
    picture="pairs",
    axes=("reading sublayer", "source"),
    scale=(-1.0, 1.0),
)
@torch.no_grad()
def paths(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """Mean weights (readers, sources), None where a source comes later."""
    states = [*(state for state, _ in stack.sublayers()), stack.states[-1]]
    weights = stack.design.path_weights(states)
    if weights is None:
        return Findings(
            reason="the design has no explicit weight of one sublayer in another, as when norms "
            "that stand on the stream rescale it for every token"
        )
    rows: list[list[float | None]] = []
    for weights_SBT in weights:
        mean = weights_SBT.double().mean((1, 2)).tolist()
        rows.append([*mean, *[None] * (len(states) - len(mean))])
    last = [value for value in rows[-1] if value is not None]
    return Findings(
        {"weights": rows}, {"embedding_in_read_out": last[0], "last_in_read_out": last[-1]}
    )
