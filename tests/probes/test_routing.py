"""Paths, transport and dead segments of stacks whose routing is set by hand; in float64."""

from math import ceil
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import residuals
from depthbench import probes
from depthbench.model.decoder import Decoder
from depthbench.probes.executed import Executed
from depthbench.probes.registry import Findings
from tests.residuals.kit import make_model, perturb, shape_of, tokens_of

K, D, M = 4, 8, 4
L = 2 * K
EXPLICIT = [
    "rezero",
    "mhc-lite",
    "value-residual",
    "denseformer",
    "pre-ln",
    "sandwich-ln",
    "lns",
    "moda",
    "hc",
    "mhc",
    "full-attnres",
    "block-attnres",
]


def executed(model: Decoder, batch: int = 2, length: int = 5) -> Executed:
    tokens = tokens_of(batch, length + 1)
    return Executed(model, tokens[:, :-1], tokens[:, 1:])


def measured(stack: Executed, name: str, **thresholds: float) -> Findings:
    probe = probes.get(name)
    return probe.measure(stack, {**probe.thresholds, **thresholds})


def test_paths_are_a_triangle_of_mean_weights() -> None:
    rows = measured(executed(make_model("pre-ln", shape_of(K, D))), "paths").values["weights"]
    assert rows == [[1.0] * (1 + v) + [None] * (L - v) for v in range(L + 1)]
    rows = measured(executed(make_model("hc", shape_of(K, D))), "paths").values["weights"]
    assert rows[:L] == [[1.0] * (1 + v) + [None] * (L - v) for v in range(L)]
    assert rows[L] == [4.0] * (L + 1)


@pytest.mark.parametrize("group", [1, 2, 3])
def test_paths_of_zero_queries(group: int) -> None:
    stack = executed(make_model("block-attnres", shape_of(K, D), group=group))
    for visit, row in enumerate(measured(stack, "paths").values["weights"]):
        assert row[: 1 + visit] == pytest.approx([1 / (1 + ceil(visit / group))] * (1 + visit))
        assert row[1 + visit :] == [None] * (L - visit)


@pytest.mark.parametrize("name", EXPLICIT)
@torch.no_grad()
def test_paths_are_means_over_tokens(name: str) -> None:
    """For one token the mean is the weight: sources so weighted are what the head reads."""
    model = make_model(name, shape_of(K, D))
    perturb(model)
    tokens = tokens_of(1, 2)
    stack = Executed(model, tokens[:, :1], tokens[:, 1:])
    found = measured(stack, "paths")
    outputs = [y for _, y in stack.sublayers(stack.segments[0])]
    if name == "sandwich-ln":
        outputs = [norm(y) for norm, y in zip(model.design.output_norms, outputs, strict=True)]
    sources = [model.embedding(stack.tokens_BT), *outputs]
    read = sum(w * source for w, source in zip(found.values["weights"][-1], sources, strict=True))
    expected = model.design.finish(stack.points[-1].state)
    torch.testing.assert_close(read, expected, rtol=1e-10, atol=1e-12)
    assert found.summary["embedding_in_read_out"] == found.values["weights"][-1][0]
    assert found.summary["last_in_read_out"] == found.values["weights"][-1][-1]


def test_what_a_design_cannot_answer_is_said() -> None:
    answers = {
        "paths": {*EXPLICIT, "mix-ln"},  # at this depth a quarter is no block
        "transport": {"hc", "mhc", "mhc-lite"},
        "dead-segment": {"block-attnres"},
    }
    for name in residuals.names():
        stack = executed(make_model(name, shape_of(2, D)), 1, 3)
        for probe, able in answers.items():
            found = measured(stack, probe)
            assert bool(found.values) == (name in able), (name, probe)
            assert (found.reason is None) == (name in able)


def test_transport_of_streams_that_are_carried_as_they_are() -> None:
    stack = executed(make_model("hc", shape_of(K, D)))
    found = measured(stack, "transport")
    assert found.values["effective_rank"] == pytest.approx([M] * L)
    assert found.values["cosine"] == pytest.approx([1.0] * L)  # copies of one another
    assert found.summary == pytest.approx({"effective_rank": M, "cosine": 1.0})


def test_transport_of_streams_that_are_averaged() -> None:
    model = make_model("mhc", shape_of(K, D), init="flat")
    torch.nn.init.zeros_(model.design.routing[0].phi)
    for routing in model.design.routing:
        torch.nn.init.zeros_(routing.phi)
    assert measured(executed(model), "transport").values["effective_rank"] == pytest.approx([1] * L)


@torch.no_grad()
def test_transport_is_the_product_of_all_mixings_so_far() -> None:
    """Two of four streams are dropped in sublayer 2, another one in sublayer 5."""
    model = make_model("hc", shape_of(K, D), static=True)
    for k, kept in ((2, [1.0, 1.0, 0.0, 0.0]), (5, [0.0, 1.0, 1.0, 0.0])):
        model.design.routing[k].static[1:-1] = torch.diag(torch.tensor(kept))
    ranks = measured(executed(model), "transport").values["effective_rank"]
    assert ranks == pytest.approx([4, 4, 2, 2, 2, 1, 1, 1])


@torch.no_grad()
def test_transport_multiplies_in_the_order_of_execution() -> None:
    """Streams move on by one, 0 → 1 → 2 → 3; then only 0 and 1 are kept: what came from 0 is left.

    In the other order two would be.
    """
    model = make_model("hc", shape_of(K, D), static=True)
    onward = torch.diag(torch.ones(3), 1)  # entry (s, s + 1)
    model.design.routing[2].static[1:-1] = onward.T
    model.design.routing[5].static[1:-1] = torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0]))
    ranks = measured(executed(model), "transport").values["effective_rank"]
    assert ranks == pytest.approx([4, 4, 3, 3, 3, 1, 1, 1])


@torch.no_grad()
def test_cosine_of_two_streams_that_turn_apart() -> None:
    """Sublayer 0 writes to stream 1 only: what it adds there is the whole difference."""
    model = make_model("hc", shape_of(2, D), static=True, streams=2)
    perturb(model.blocks)
    model.design.routing[0].static[-1] = torch.tensor([0.0, 1.0])
    stack = executed(model)
    x = model.embedding(stack.tokens_BT)
    _, y = next(stack.sublayers(stack.segments[0]))
    expected = F.cosine_similarity(x, x + y, dim=-1).abs().mean().item()
    found = measured(stack, "transport").values["cosine"]
    assert found[:2] == pytest.approx([1.0, expected])


def test_one_stream_has_no_cosine() -> None:
    found = measured(executed(make_model("hc", shape_of(2, D), streams=1)), "transport")
    assert found.values["effective_rank"] == pytest.approx([1.0] * 4)
    assert found.values["cosine"] == [None] * 4


def test_dead_segment_at_zero_queries() -> None:
    """The MLP of block b sees the embedding, b groups and the partial sum: weight 1/(b + 2)."""
    stack = executed(make_model("block-attnres", shape_of(K, D), group=2))
    found = measured(stack, "dead-segment")
    assert found.values["weight"] == pytest.approx([1 / (b + 2) for b in range(K)])
    assert found.summary["blocks"] == 0
    assert measured(stack, "dead-segment", dead=0.51).summary["blocks"] == K
    # Groups of four: the second block's attention and MLP both read the partial sum.
    stack = executed(make_model("block-attnres", shape_of(K, D), group=4))
    means = measured(stack, "dead-segment").values["weight"]
    assert means == pytest.approx([1 / 2, 1 / 2, 1 / 3, 1 / 3])


@pytest.mark.parametrize("num_dead", [0, 2, K])
@torch.no_grad()
def test_dead_segment_of_queries_that_turn_from_the_partial_sum(num_dead: int) -> None:
    """For one token: the query of a block's MLP points against its attention's output, or along."""
    model = make_model("block-attnres", shape_of(K, D), group=2)
    perturb(model.blocks)
    tokens = torch.zeros(1, 1, dtype=torch.long)
    for b in range(K):
        stack = Executed(model, tokens, tokens)
        outputs = [y for _, y in stack.sublayers(stack.segments[0])]
        along = outputs[2 * b][0, 0]
        sign = -1 if b < num_dead else 1
        model.design.queries[2 * b] = sign * 50 * along / along.norm()
    found = measured(Executed(model, tokens, tokens), "dead-segment")
    assert found.summary["blocks"] == num_dead
    assert all((w < 0.05) == (b < num_dead) for b, w in enumerate(found.values["weight"]))


def test_a_dead_block_after_a_live_one_is_in_no_leading_segment() -> None:
    weights: list[Tensor] = []
    model = make_model("block-attnres", shape_of(K, D), group=2)
    stack = executed(model)
    for weight in (0.01, 0.02, 0.9, 0.01):
        weights.append(torch.full((2, 5), weight, dtype=torch.float64))

    def running(visit: int, state: Any) -> Tensor | None:
        return weights[visit // 2] if visit % 2 else None

    model.design.running_weight = running
    assert measured(stack, "dead-segment").summary["blocks"] == 2
