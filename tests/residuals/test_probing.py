"""What designs answer to probes, design by design and without a decoder; in float64."""

from math import ceil
from typing import Any

import pytest
import torch
from torch import Tensor

import residuals
from residuals import Design
from residuals.probing import Probed
from tests.residuals.kit import (
    drive,
    make_design,
    perturb,
    randn,
    random_branches,
    relative,
    shape_of,
    stack_of,
)
from tests.residuals.naive import rms

K, D = 4, 8
L = 2 * K
Driven = tuple[Tensor, list[Tensor], list[Tensor], list[tuple[Tensor, ...]]]


def built(name: str, rounds: int = 1, **options: Any) -> Design:
    design = residuals.build(name, stack_of(shape_of(K, D), rounds=rounds), **options)
    residuals.initialise(design, 0)
    return design.double()


def driven(design: Design) -> Driven:
    """Read-out, sublayer outputs, normed inputs and states of a stack with random branches."""
    outputs: list[Tensor] = []
    branches = random_branches(L, D)

    def branch(k: int, x: Tensor) -> Tensor:
        outputs.append(branches(k, x))
        return outputs[-1]

    last, inputs, states = drive(design, embedding(), branch)
    return last, outputs, inputs, states


def embedding() -> Tensor:
    return randn(2, 3, D)


STREAMS = ["hc", "mhc", "mhc-lite"]
RECONSTRUCTED: list[tuple[str, dict[str, Any]]] = [
    ("pre-ln", {}),
    ("lns", {}),
    ("sandwich-ln", {}),
    ("moda", {}),
    ("hc", {}),
    ("hc", {"streams": 3, "tanh": False}),
    ("mhc", {}),
    ("mhc", {"init": "flat"}),
    ("full-attnres", {}),
    *(("block-attnres", {"group": group}) for group in (2, 3, 5, 6, 50)),
    ("mhc-lite", {}),
    ("value-residual", {}),
    ("rezero", {}),
    ("mix-ln", {"post_share": 0.0}),
    ("denseformer", {}),
    ("denseformer", {"dilation": 3}),
    ("denseformer", {"dilation": 2, "period": 3}),
]


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize(("name", "options"), RECONSTRUCTED, ids=str)
@torch.no_grad()
def test_path_weights_reconstruct_every_input(
    name: str, options: dict[str, Any], rounds: int
) -> None:
    design = built(name, rounds, **options)
    perturb(design, 0.5)
    last, outputs, inputs, states = driven(design)
    if name == "sandwich-ln":  # its normed outputs are what joins the stream
        outputs = [design.output_norms[v % L](y) for v, y in enumerate(outputs)]
    sources = torch.stack((embedding(), *outputs))
    weights = list(design.path_weights(states))
    assert len(weights) == L * rounds + 1
    for visit, weights_SBT in enumerate(weights):
        assert weights_SBT.shape == (1 + visit, 2, 3)
        total = (weights_SBT.unsqueeze(-1) * sources[: 1 + visit]).sum(0)
        if visit == L * rounds:
            assert relative(total, last) < 1e-12
        else:
            if name == "rezero":  # the one without norms
                assert relative(total, inputs[visit]) < 1e-12
                continue
            normed = rms(total, 0.0) * design.norms[visit % L].gain
            scale = (visit // 2 + 1) ** 0.5 if name == "lns" else 1.0
            assert relative(normed / scale, inputs[visit]) < 1e-11, visit


@pytest.mark.parametrize(
    "name", ["pre-ln", "lns", "sandwich-ln", "moda", "hc", "denseformer", "value-residual"]
)
@torch.no_grad()
def test_initial_paths_weigh_all_alike(name: str) -> None:
    design = built(name)
    *inside, read_out = design.path_weights(driven(design)[-1])
    for weights in inside:
        assert torch.equal(weights, torch.ones_like(weights))
    expected = 4.0 if name == "hc" else 1.0  # four equal streams are summed
    assert torch.equal(read_out, torch.full_like(read_out, expected))


@pytest.mark.parametrize("name", ["mhc", "mhc-lite"])
@torch.no_grad()
def test_initial_paths_of_mhc(name: str) -> None:
    """All streams are equal: the weight is the sum of H_pre, and that of a mean at the end."""
    design = built(name)
    high, low = torch.sigmoid(torch.tensor([8.0, -8.0], dtype=torch.float64)).tolist()
    *inside, read_out = design.path_weights(driven(design)[-1])
    for weights in inside:
        torch.testing.assert_close(weights, torch.full_like(weights, high + 3 * low))
    torch.testing.assert_close(read_out, torch.ones_like(read_out))


@pytest.mark.parametrize("group", [1, 2, 3, 6, 50])
@torch.no_grad()
def test_zero_queries_weigh_all_sources_alike(group: int) -> None:
    design = built("block-attnres", group=group)
    states = driven(design)[-1]
    for visit, weights in enumerate(design.path_weights(states)):
        num_sources = 1 + ceil(visit / group)
        torch.testing.assert_close(weights, torch.full_like(weights, 1 / num_sources))
        running = design.running_weight(visit, states[visit])
        if visit % group == 0:
            assert running is None
        else:
            torch.testing.assert_close(running, weights[-1])


@pytest.mark.parametrize(
    "name", ["post-ln", "deepnorm", "keel", "deeploop", "mix-ln", "hybridnorm", "layerscale"]
)
def test_norms_on_the_stream_and_gains_a_channel_leave_no_explicit_paths(name: str) -> None:
    design = built(name)
    assert design.path_weights(driven(design)[-1]) is None


@pytest.mark.parametrize("name", STREAMS)
@torch.no_grad()
def test_mixing_is_what_carries_the_streams(name: str) -> None:
    design = built(name)
    perturb(design, 0.5)
    states = driven(design)[-1]
    for k, state in enumerate(states[:-1]):
        x, carry = design.read(k, k, state)
        (carried,) = design.write(k, k, carry, torch.zeros_like(x))
        mixing = design.mixing(k, k, state)
        assert mixing.shape == (2, 3, 4, 4)
        assert relative(mixing @ design.streams_of(state), carried) < 1e-12


@pytest.mark.parametrize("name", [n for n in residuals.names() if n not in STREAMS])
def test_a_design_with_one_stream_has_nothing_to_mix(name: str) -> None:
    design = built(name)
    states = driven(design)[-1]
    assert design.mixing(0, 0, states[0]) is None
    assert design.streams_of(states[0]) is None


@pytest.mark.parametrize("name", residuals.names())
@torch.no_grad()
def test_answers_leave_the_state_as_it_is(name: str) -> None:
    """States are shared: what is asked of one must not change it."""
    design = built(name)
    perturb(design, 0.5)
    states = driven(design)[-1]
    before = [tuple(tensor.clone() for tensor in state) for state in states]
    for visit in range(0, L, 2):
        design.skip(visit, states[visit])
        design.skip(visit, states[visit], copy=True)
        for other in range(visit + 2, L, 2):
            design.exchange(visit, other, states[visit])
        design.depth_state(visit, states[visit])
        design.read_out(visit, states[visit])
    for state, old in zip(states, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(state, old, strict=True))


@pytest.mark.parametrize("group", [1, 2, 3, 6])
@torch.no_grad()
def test_a_block_left_out_adds_no_source(group: int) -> None:
    """What the next consumer reads is made of the sources present, and sums to one."""
    design = built("block-attnres", group=group)
    perturb(design, 0.5)
    _, outputs, _, states = driven(design)
    for visit in range(0, L, 2):
        groups: dict[int, Tensor] = {}
        for v, y in enumerate(outputs[:visit]):
            groups[v // group] = groups.get(v // group, torch.zeros_like(y)) + y
        present = torch.stack((embedding(), *groups.values()))
        keys = rms(present, design.stack.norm_eps) * design.key_gains[visit + 1]
        logits = (keys * design.queries[visit + 1]).sum(-1)
        expected = (torch.softmax(logits, 0).unsqueeze(-1) * present).sum(0)
        found = design.depth_state(visit + 2, design.skip(visit, states[visit]))
        assert relative(found, expected) < 1e-12
        copied = design.depth_state(visit + 2, design.skip(visit, states[visit], copy=True))
        assert relative(copied, present[-1]) < 1e-12


def test_the_default_answers_are_those_of_one_stream() -> None:
    state = (randn(2, 3, D),)
    asked = Probed()
    assert asked.finish(state) is state[0]
    assert asked.depth_state(2, state) is state[0]
    assert asked.read_out(2, state) is state[0]
    assert asked.skip(2, state, copy=True) is state
    assert asked.exchange(2, 4, state) is state
    assert asked.path_weights([state]) is None
    assert asked.mixing(0, 0, state) is None
    assert asked.streams_of(state) is None
    assert asked.running_weight(0, state) is None
    assert not asked.positional


def test_depth_state_of_streams_is_all_of_them() -> None:
    design = make_design("hc", K, D)
    H = randn(2, 3, 4, D)
    z = design.depth_state(0, (H,))
    assert z.shape == (2, 3, 4 * D)
    assert torch.equal(z[..., D : 2 * D], H[:, :, 1])
