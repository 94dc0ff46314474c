"""Attention Residuals: weights over depth, groups, path weights, and memory linear in depth."""

from math import ceil

import pytest
import torch
from torch import Tensor

import residuals
from residuals import Design
from residuals import sources as depth_sources
from residuals.parameters import declared
from tests.residuals.kit import (
    Branch,
    drive,
    gradients,
    make_design,
    make_model,
    perturb,
    randn,
    random_branches,
    relative,
    saved_bytes,
    shape_of,
    stack_of,
    tokens_of,
)

D, K = 8, 4
L = 2 * K


def perturbed(name: str, num_blocks: int = K, **options: int) -> Design:
    design = make_design(name, num_blocks, D, **options)
    perturb(design, 0.8)
    return design


def recorded(branches: Branch, outputs: list[Tensor]) -> Branch:
    def branch(k: int, x: Tensor) -> Tensor:
        outputs.append(branches(k, x))
        return outputs[-1]

    return branch


@pytest.mark.parametrize("name", ["full-attnres", "block-attnres"])
@pytest.mark.parametrize("num_blocks", [1, 3, 20])
def test_parameters_and_initial_values(name: str, num_blocks: int) -> None:
    d = 16
    design = make_design(name, num_blocks, d)
    # 2d for every sublayer but the first, and 2d for the last consumer.
    assert design.num_extra_params() == 2 * d * (2 * num_blocks - 1) + 2 * d
    assert torch.equal(design.queries, torch.zeros(2 * num_blocks, d).double())
    assert torch.equal(design.key_gains, torch.ones(2 * num_blocks, d).double())
    roles = {name: rule.role for name, _, rule in declared(design)}
    assert not roles["queries"].decay
    assert not roles["key_gains"].decay


def test_queries_are_still_zero_in_a_decoder_after_every_init_path() -> None:
    for seed in (0, 1):
        model = make_model("full-attnres", shape_of(3), seed=seed)
        residuals.initialise(model, seed + 7)
        assert not model.design.queries.any()


def test_group_of_one_is_full_attention_residuals() -> None:
    full, block = perturbed("full-attnres"), perturbed("block-attnres", group=1)
    block.load_state_dict(full.state_dict())
    x, branches = randn(2, 3, D), random_branches(L, D)
    results = [drive(design, x, branches)[0] for design in (full, block)]
    assert torch.equal(*results)


@pytest.mark.parametrize("num_blocks", [1, 2, 8, 9, 16, 17, 35])
def test_default_groups_are_whole_blocks_and_at_most_eight(num_blocks: int) -> None:
    design = residuals.build("block-attnres", stack_of(shape_of(num_blocks)))
    group = design.group
    assert group == 2 * ceil(num_blocks / 8)
    assert group % 2 == 0
    assert ceil(2 * num_blocks / group) <= 8


def weights_of(design: Design, states: list[tuple[Tensor, ...]]) -> list[Tensor]:
    return [design.mix(visit, states[visit])[1] for visit in range(1, len(states))]


@pytest.mark.parametrize("group", [1, 2, 3, 6, 50])
def test_weights_sum_to_one_over_the_sources_present(group: int) -> None:
    design = perturbed("block-attnres", group=group)
    _, _, states = drive(design, randn(2, 3, D), random_branches(L, D))
    for visit, weights in enumerate(weights_of(design, states), 1):
        assert len(weights) == 1 + ceil(visit / group)  # the embedding, and started groups
        total = weights.sum(0)
        torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-14)
        assert (weights > 0).all()
        assert weights.std() > 1e-3


@pytest.mark.parametrize("group", [1, 2, 3, 6, 50])
def test_path_weights_reconstruct_the_sublayer_inputs(group: int) -> None:
    """Output i weighs in input l what its group weighs; the embedding is counted once."""
    design = perturbed("block-attnres", group=group)
    embedding, outputs = randn(2, 3, D), list[Tensor]()
    branch = recorded(random_branches(L, D), outputs)
    last, inputs, states = drive(design, embedding, branch)
    for visit, weights in enumerate(weights_of(design, states), 1):
        total = weights[0, ..., None] * embedding
        for i in range(visit):
            total = total + weights[1 + i // group, ..., None] * outputs[i]
        if visit == L:
            assert relative(last, total) < 1e-12
        else:
            normed = total / total.pow(2).mean(-1, keepdim=True).sqrt() * design.norms[visit].gain
            assert relative(inputs[visit], normed) < 1e-11


def test_first_sublayer_reads_the_embedding_alone() -> None:
    design = perturbed("full-attnres")
    x = randn(2, 3, D)
    _, inputs, _ = drive(design, x, random_branches(L, D))
    normed = x / x.pow(2).mean(-1, keepdim=True).sqrt() * design.norms[0].gain
    assert relative(inputs[0], normed) < 1e-13


@pytest.mark.parametrize("scaled", [0, 2, 5])
def test_scale_of_a_source_leaves_its_logit(scaled: int) -> None:
    """Keys are normed: a hundredfold source keeps its weight, and adds a hundredfold value."""
    design = perturbed("full-attnres")
    noise = randn(L + 1, 2, 3, D)
    results = []
    for factor in (1.0, 100.0):
        sources = noise.clone()
        sources[scaled] *= factor
        _, _, states = drive(design, sources[0], lambda k, _, s=sources: s[k + 1])
        results.append(weights_of(design, states))
    for before, after in zip(*results, strict=True):
        torch.testing.assert_close(after, before, rtol=1e-11, atol=1e-14)


def test_values_are_not_normed() -> None:
    design = make_design("full-attnres", K, D)  # zero queries: a plain mean
    noise = randn(L + 1, 1, 2, D)
    last, _, _ = drive(design, noise[0], lambda k, _: 100 * noise[k + 1])
    assert relative(last, (noise[0] + 100 * noise[1:].sum(0)) / (L + 1)) < 1e-12


def test_logits_carry_no_scale_of_the_width() -> None:
    """q = e₁·c and a source along e₁: the logit is c·√d, not c."""
    design = make_design("full-attnres", 1, D)
    with torch.no_grad():
        design.queries[:, 0] = 0.5
    e1 = torch.zeros(1, 1, D, dtype=torch.float64)
    e1[..., 0] = 3.0
    e2 = e1.roll(1, -1)
    _, _, states = drive(design, e1, lambda k, _: e2)
    first = weights_of(design, states)[0][:, 0, 0]
    expected = torch.softmax(torch.tensor([0.5 * D**0.5, 0.0], dtype=torch.float64), 0)
    assert relative(first, expected) < 1e-12


def test_last_consumer_has_its_own_query_and_reads_the_embedding() -> None:
    design = perturbed("full-attnres")
    x, branches = randn(2, 3, D), random_branches(L, D)
    before, inputs, _ = drive(design, x, branches)
    with torch.no_grad():
        design.queries[-1] += 1.0
    after, same, _ = drive(design, x, branches)
    assert relative(after, before) > 1e-3
    assert all(torch.equal(a, b) for a, b in zip(same, inputs, strict=True))
    x = x.requires_grad_()
    last, _, _ = drive(design, x, lambda k, _: torch.zeros(2, 3, D, dtype=torch.float64) + k)
    assert torch.autograd.grad(last.sum(), x)[0].abs().min() > 0


def test_partial_sum_is_reset_when_its_group_is_complete() -> None:
    """Zero queries, groups of two, outputs 1, 2, 4, …: the mean of the sums by hand."""
    design = make_design("block-attnres", K, D, group=2)
    one = torch.ones(1, 1, D, dtype=torch.float64)
    last, _, states = drive(design, 0 * one, lambda k, _: 2.0**k * one)
    sums = [0, 1 + 2, 4 + 8, 16 + 32, 64 + 128]
    assert relative(last, sum(sums) / 5 * one) < 1e-13
    mixed = design.mix(5, states[5])[0]  # embedding, two groups, and the running 16
    assert relative(mixed, (0 + 3 + 12 + 16) / 4 * one) < 1e-13


def test_early_logits_equal_those_computed_when_read_to_fp32() -> None:
    """The batched form against stacking and norming every source in each consumer, in fp32."""
    design = perturbed("full-attnres", 8).float()
    x, branches = randn(2, 3, D), random_branches(16, D)
    outputs: list[Tensor] = []
    as_fp32 = recorded(lambda k, x: branches(k, x.double()).float(), outputs)
    _, _, states = drive(design, x.float(), as_fp32)
    sources = torch.stack([x.float(), *outputs])
    normed = sources / sources.pow(2).mean(-1, keepdim=True).sqrt()
    for visit, weights in enumerate(weights_of(design, states), 1):
        consumer = visit - 1
        logits = (normed[: visit + 1] * design.key_gains[consumer] * design.queries[consumer]).sum(
            -1
        )
        torch.testing.assert_close(weights, torch.softmax(logits, 0), rtol=0, atol=1e-6)


def test_means_taken_ahead_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    design = perturbed("full-attnres", 20)
    x, branches = randn(2, 3, D).requires_grad_(), random_branches(40, D)
    results = []
    for ahead, fewest in ((16, 16), (3, 4), (1, 10**6)):
        monkeypatch.setattr(depth_sources, "AHEAD", ahead)
        monkeypatch.setattr(depth_sources, "FEWEST", fewest)
        last, inputs, _ = drive(design, x, branches)
        found = torch.autograd.grad(last.pow(2).sum(), (x, *design.parameters()))
        results.append((last, *inputs, *found))
    for direct, *others in zip(results[2], *results[:2], strict=True):
        for other in others:
            assert relative(other, direct) < 1e-10


def kept_bytes(name: str, num_blocks: int) -> int:
    shape = shape_of(num_blocks, 64, heads=2, kv_heads=2)
    model = make_model(name, shape, dtype=torch.float32, eps=1e-6)
    with saved_bytes(model) as total:
        loss = model.summed_nll(tokens_of(1, 16), tokens_of(1, 16))
    loss.backward()
    return total[0]


@pytest.mark.parametrize("name", ["full-attnres", "block-attnres"])
def test_activation_memory_grows_linearly_with_depth(name: str) -> None:
    few, some, many = (kept_bytes(name, num_blocks) for num_blocks in (8, 16, 32))
    assert some <= 2.2 * few
    assert many <= 2.2 * some


def test_activation_memory_of_the_design_alone() -> None:
    """At L = 64 a source is kept once, beside what the input norms keep: no stack of them.

    Keeping a stack in every consumer would cost 2,000 widths a token.
    """
    d, num_blocks, tokens = 256, 32, 4
    design = make_design("full-attnres", num_blocks, d).float()
    perturb(design, 0.1)
    x = randn(1, tokens, d, dtype=torch.float32).requires_grad_()
    with saved_bytes(design) as total:
        drive(design, x, lambda k, h: h + 1)
    widths = total[0] / (4 * tokens * d)
    scalars = 3 * (64 * 65 / 2) / d  # logits, weights and norms of every consumer and source
    assert widths <= 4 * 64 + 2 * scalars + 64  # keys are kept a few times, too


def test_gradients_reach_queries_from_zero() -> None:
    model = make_model("full-attnres", shape_of(3))
    found = gradients(model.logits(tokens_of()).pow(2).sum(), model)
    assert found["design.queries"].abs().amax(1).min() > 0
    assert not found["design.key_gains"].any()  # exactly zero while the queries are


def test_flops_by_hand() -> None:
    """Two sublayers, two consumers: full, then one group of both."""
    full = residuals.build("full-attnres", stack_of(shape_of(1, D))).routing_flops()
    # The embedding for 2 consumers, outputs 0 and 1 for 2 and 1; mixes of 2 and 3 sources.
    assert (full.matmul, full.mixing) == (2 * D * (2 + 2 + 1), 2 * D * (2 + 3))
    block = residuals.build("block-attnres", stack_of(shape_of(1, D)), group=2).routing_flops()
    # The embedding for 2, the running partial once, the completed group once; mixes of 2 and 2.
    assert (block.matmul, block.mixing) == (2 * D * (2 + 1 + 1), 2 * D * (2 + 2))


def test_negative_group_is_refused() -> None:
    with pytest.raises(residuals.DesignError, match="group = -2"):
        residuals.build("block-attnres", stack_of(shape_of()), group=-2)
