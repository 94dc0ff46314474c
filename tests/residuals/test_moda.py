"""MoDA: one softmax over positions and depth, slots at the query's own position."""

import pytest
import torch
from torch import Tensor

import residuals
from depthbench.model.attention import joint
from depthbench.model.rotary import Rotary
from residuals import State
from tests.residuals.kit import (
    gradients,
    make_design,
    make_model,
    perturb,
    randn,
    relative,
    shape_of,
    stack_of,
    tokens_of,
)
from tests.residuals.naive import joint_attention

B, T, H, G, HEAD = 2, 7, 4, 2, 8


class Recorder:
    """A sequence that notes how it is called and attends to each token's own value."""

    def __init__(self) -> None:
        self.calls: list[tuple[State, State, bool]] = []

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.calls.append(((), (), False))
        return v

    def joint(
        self, q: Tensor, k: Tensor, v: Tensor, depth_k: State, depth_v: State, rotate: bool = False
    ) -> Tensor:
        self.calls.append((depth_k, depth_v, rotate))
        return v


def rotary_at(first: int = 0) -> Rotary:
    return Rotary.at(torch.arange(first, first + T), HEAD, 10_000.0, torch.float64)


def qkv(kv_heads: int = G) -> tuple[Tensor, Tensor, Tensor]:
    q = randn(B, T, H, HEAD, seed=1)
    return q, randn(B, T, kv_heads, HEAD, seed=2), randn(B, T, kv_heads, HEAD, seed=3)


def slots_of(num: int, kv_heads: int = G) -> tuple[State, State]:
    """Keys and values (B, T, G, 1, d): the fourth axis is for the query heads of a group."""
    keys = tuple(randn(B, T, kv_heads, 1, HEAD, seed=10 + s) for s in range(num))
    return keys, tuple(randn(B, T, kv_heads, 1, HEAD, seed=50 + s) for s in range(num))


def test_slots_seen_by_each_block() -> None:
    """Block b sees 2b: of each earlier block its attention's own K, V and its MLP's map."""
    K = 3
    design = make_design("moda", K)
    seq, state = Recorder(), design.start(randn(B, T, 16))
    written: list[tuple[Tensor, Tensor]] = []
    for k in range(2 * K):
        x, carry = design.read(k, k, state)
        y = torch.zeros(B, T, 16, dtype=torch.float64)
        if k % 2:
            if k < 2 * K - 1:
                both = (x @ design.maps[k // 2].weight.T).unflatten(-1, (2, 2, 8))
                written.append((both[:, :, 0], both[:, :, 1]))
        else:
            q, key, value = (randn(B, T, 2, 8, seed=3 * k + i) for i in range(3))
            _, carry = design.attend(k, k, carry, q, key, value, seq)
            seen_k, seen_v, rotated = seq.calls[-1]
            assert len(seen_k) == len(seen_v) == k  # 2b at sublayer k = 2b
            for (a, b), c, d in zip(written, seen_k, seen_v, strict=True):
                assert c.shape == d.shape == (B, T, 2, 1, 8)
                assert relative(c.squeeze(3), a) < 1e-13
                assert relative(d.squeeze(3), b) < 1e-13
            assert rotated is False
            written.append((key, value))
        state = design.write(k, k, carry, y)
    assert len(design.maps) == K - 1  # the last block writes no MLP slot


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_parameters(kv_heads: int) -> None:
    d, head, K = 32, 8, 5
    design = residuals.build("moda", stack_of(shape_of(K, d, heads=4, kv_heads=kv_heads)))
    assert design.num_extra_params() == (K - 1) * d * 2 * kv_heads * head
    if kv_heads == 4:
        assert design.num_extra_params() == (K - 1) * 2 * d * d
    assert all(rule.role.decay for m in design.maps for rule in m.rules.values())


@pytest.mark.parametrize("backend", ["plain", "blockwise"])
@pytest.mark.parametrize("rotate_depth_query", [False, True])
def test_joint_attention_is_one_softmax(backend: str, rotate_depth_query: bool) -> None:
    kv_heads = H if backend == "blockwise" else G
    q, k, v = qkv(kv_heads)
    keys, values = slots_of(3, kv_heads)
    inputs = [x.requires_grad_() for x in (q, k, v, *keys, *values)]
    actual = joint(q, k, v, rotary_at(), keys, values, rotate_depth_query, backend)
    pairs = [(key.squeeze(3), value.squeeze(3)) for key, value in zip(keys, values, strict=True)]
    expected = joint_attention(q, k, v, pairs, rotate_depth_query)
    assert relative(actual, expected) < 1e-12
    direction = randn(*actual.shape)
    found, wanted = (torch.autograd.grad((x * direction).sum(), inputs) for x in (actual, expected))
    for gradient, reference in zip(found, wanted, strict=True):
        assert relative(gradient, reference) < 1e-11


@pytest.mark.parametrize("backend", ["plain", "blockwise"])
def test_weights_over_both_sets_sum_to_one(backend: str) -> None:
    kv_heads = H if backend == "blockwise" else G
    q, k, v = qkv(kv_heads)
    keys, values = slots_of(3, kv_heads)
    ones = tuple(torch.ones_like(x) for x in values)
    total = joint(5 * q, k, torch.ones_like(v), rotary_at(), keys, ones, False, backend)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-14)
    depth_only = joint(5 * q, k, torch.zeros_like(v), rotary_at(), keys, ones, False, backend)
    assert 0.01 < depth_only.mean() < 0.99
    assert depth_only.std() > 0.05


def test_absent_slot_is_no_zero_slot() -> None:
    q, k, v = qkv()
    keys, values = slots_of(2)
    zero = torch.zeros_like(keys[0])
    two = joint(q, k, v, rotary_at(), keys, values)
    three = joint(q, k, v, rotary_at(), (*keys, zero), (*values, zero))
    assert relative(three, two) > 1e-2


def test_slots_count_at_their_own_position_only() -> None:
    q, k, v = qkv()
    keys, values = slots_of(2)
    before = joint(q, k, v, rotary_at(), keys, values)
    moved = tuple(x.clone() for x in (*keys, *values))
    for x in moved:
        x[:, 3] += 1
    after = joint(q, k, v, rotary_at(), moved[:2], moved[2:])
    others = [t for t in range(T) if t != 3]
    assert torch.equal(after[:, others], before[:, others])
    assert (after[:, 3] - before[:, 3]).abs().min() > 1e-6


def test_shifting_all_positions_leaves_depth_logits_unchanged() -> None:
    q, k, v = qkv()
    keys, values = slots_of(2)
    near, far = (joint(q, k, v, rotary_at(first), keys, values) for first in (0, 1000))
    assert relative(far, near) < 1e-11
    rotated = [joint(q, k, v, rotary_at(first), keys, values, True) for first in (0, 1000)]
    assert relative(rotated[1], rotated[0]) > 1e-2


def test_option_rotates_the_depth_query_in_the_design() -> None:
    tokens = tokens_of()
    plain, rope = (make_model("moda", shape_of(3), depthbench_rope=flag) for flag in (False, True))
    perturb(plain)
    rope.load_state_dict(plain.state_dict())
    logits = plain.logits(tokens), rope.logits(tokens)
    assert torch.equal(logits[0][:, 0], logits[1][:, 0])  # position 0 is not turned
    assert relative(logits[1][:, 1:], logits[0][:, 1:]) > 1e-6


def test_without_depth_slots_it_is_pre_ln() -> None:
    """Keys that no query can prefer: logits of −∞ in effect leave the causal softmax alone."""
    model, base = make_model("moda", shape_of(1)), make_model("pre-ln", shape_of(1))
    perturb(base)
    model.load_state_dict(base.state_dict())
    assert torch.equal(model.logits(tokens_of()), base.logits(tokens_of()))
    q, k, v = qkv()
    far = tuple(
        -1e4 * q[:, :, ::2].unsqueeze(3) for _ in range(2)
    )  # head 2g of group g, and its neighbour
    q = q[:, :, ::2].repeat_interleave(2, 2)
    alone = joint_attention(q, k, v, [])
    _, values = slots_of(2)
    assert relative(joint(q, k, v, rotary_at(), far, values), alone) < 1e-12


def test_output_norm_option() -> None:
    model = make_model("moda", shape_of(2), post_norm=True)
    assert model.design.num_extra_params() == make_design("moda", 2).num_extra_params()
    design, x, y = model.design, randn(1, 2, 16), randn(1, 2, 16, seed=1)
    read, carry = design.read(0, 0, (x,))
    assert torch.equal(read, x)
    (after,) = design.write(0, 0, carry, y)
    assert relative(after, x + y / y.pow(2).mean(-1, keepdim=True).sqrt()) < 1e-13


def test_gradients_reach_the_maps_through_later_blocks_only() -> None:
    model = make_model("moda", shape_of(3))
    found = gradients(model.logits(tokens_of()).pow(2).sum(), model)
    assert all(found[f"design.maps.{b}.weight"].abs().max() > 0 for b in range(2))


def test_flops_by_hand() -> None:
    """Three blocks read 0, 2 and 4 slots: a dot and a weighted value for every head."""
    d, heads, kv, head = 32, 4, 2, 8
    flops = residuals.build("moda", stack_of(shape_of(3, d, heads, kv))).routing_flops()
    assert flops.matmul == 2 * 2 * d * 2 * kv * head
    assert flops.mixing == (0 + 2 + 4) * 2 * 2 * heads * head
