"""Residual-path weights: how much of each sublayer's output a later sublayer reads."""

import torch

from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings, probe


@probe(
    "paths",
    title="Residual-path weights",
    definition=(
        "explicit weight of the embedding (source 0) and of sublayer output i (source i) in the "
        "input of sublayer l before its norm, mean over tokens; the last row is the read-out. "
        "Where a stack is run in parts, every run of a part has its own rows and sources, one run "
        "after another; its source 0 is what it starts from"
    ),
    unit="weight",
    picture="pairs",
    axes=("reading sublayer", "source"),
    scale=(-1.0, 1.0),
)
@torch.no_grad()
def paths(stack: Executed, thresholds: dict[str, float]) -> Findings:
    """Mean weights (readers, sources), None where a source comes later or in another segment.

    The summary is of the read-out rows, a mean over the segments.
    """
    size = sum(1 + segment.design.stack.num_visits for segment in stack.segments)
    rows: list[list[float | None]] = []
    first, last = list[float](), list[float]()
    for segment in stack.segments:
        states = [*(state for state, _ in stack.sublayers(segment)), stack.last(segment)]
        weights = segment.design.path_weights(states)
        if weights is None:
            return Findings(
                reason="the design has no explicit weight of one sublayer in another, as when "
                "norms that stand on the stream rescale it for every token"
            )
        before: list[None] = [None] * len(rows)
        for weights_SBT in weights:
            mean: list[float] = weights_SBT.double().mean((1, 2)).tolist()
            rows.append([*before, *mean, *[None] * (size - len(before) - len(mean))])
        first.append(mean[0])
        last.append(mean[-1])
    return Findings(
        {"weights": rows},
        {
            "embedding_in_read_out": sum(first) / len(first),
            "last_in_read_out": sum(last) / len(last),
        },
    )
