"""The pairwise probes against the same forwards done whole; fp32, one thread, 4 × 128 tokens."""

from collections.abc import Callable
from itertools import combinations

import pytest
import torch

import residuals
from depthbench import probes
from depthbench.config import DesignRef, Shape
from depthbench.model.decoder import build_decoder
from depthbench.probes.causal import _relative
from depthbench.probes.executed import Executed, Point

Compare = Callable[..., None]

VOCABULARY, SEQUENCES, LENGTH = 4096, 4, 128
DEEP = Shape(layers=32, d_model=64, ffn=176, heads=2)


def _executed(design: str) -> Executed:
    ref = DesignRef(name=design, version=residuals.get(design).version)
    model = build_decoder(DEEP, VOCABULARY, ref, norm_eps=1e-10, seed=0)
    tokens = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH + 1))
    return Executed(model.requires_grad_(False), tokens[:, :-1], tokens[:, 1:])


@torch.no_grad()
def _whole_causal(stack: Executed) -> None:
    """Every skip from the embedding on, measured as the probe does."""
    design, num = stack.segments[0].design, stack.num_places
    for s in range(num - 1):
        e_BTD = stack.model.embedding(stack.tokens_BT)
        state = design.start(e_BTD)
        for place in range(s):
            _, (state, _) = stack.halves(place, place, state)
        point = Point(e_BTD, design.skip(2 * s, state))
        z = stack.depth_state(s + 1, point)
        for place, (after, output) in enumerate(stack.run(s + 1, point), s + 1):
            z_after = stack.depth_state(place + 1, after)
            _relative(z_after - z, stack.z[place + 1] - stack.z[place])
            _relative(output, stack.outputs[place])
            z = z_after


@torch.no_grad()
def _whole_permutation(stack: Executed) -> None:
    """Every exchange from the embedding on."""
    design, num = stack.segments[0].design, stack.num_places
    for i, j in combinations(range(num), 2):
        order = list(range(num))
        order[i], order[j] = j, i
        e_BTD = stack.model.embedding(stack.tokens_BT)
        state = design.start(e_BTD)
        for place in range(i):
            _, (state, _) = stack.halves(place, place, state)
        point = Point(e_BTD, design.exchange(2 * i, 2 * j, state))
        stack.loss(stack.end(i, point, order))


@pytest.mark.parametrize("design", ["pre-ln", "hc", "block-attnres", "moda"])
def test_causal_reuses_what_comes_before(compare: Compare, design: str) -> None:
    stack, probe = _executed(design), probes.get("causal")
    compare(
        f"causal / whole forwards, {design}, L{DEEP.layers} d{DEEP.d_model}",
        lambda: probe.measure(stack, probe.thresholds),
        lambda: _whole_causal(stack),
        "at most 0.6",
        rounds=3,
    )


@pytest.mark.parametrize("design", ["pre-ln"])
def test_permutation_reuses_what_comes_before(compare: Compare, design: str) -> None:
    stack, probe = _executed(design), probes.get("permutation")
    compare(
        f"permutation / whole forwards, {design}, L{DEEP.layers} d{DEEP.d_model}",
        lambda: probe.measure(stack, probe.thresholds),
        lambda: _whole_permutation(stack),
        "at most 0.75",
        rounds=1,
    )
