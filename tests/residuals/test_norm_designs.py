"""Pre-LN, Post-LN, Sandwich-LN, LNS, DeepNorm, KEEL, DeepLoop: the properties of each."""

from math import sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

import residuals
from depthbench.model.decoder import Decoder
from residuals import Design
from tests.residuals.kit import (
    drive,
    gradients,
    make_design,
    make_model,
    perturb,
    randn,
    random_branches,
    relative,
    shape_of,
    stack_of,
    tokens_of,
)


def read_scale(design: Design, visit: int, x: Tensor) -> Tensor:
    return design.read(visit % design.stack.num_sublayers, visit, design.start(x))[0]


def test_pre_ln_with_zero_output_projections_is_the_head_of_the_normed_embedding() -> None:
    model = make_model("pre-ln", shape_of(3))
    with torch.no_grad():
        for block in model.blocks:
            block.attention.out.weight.zero_()
            block.mlp.down.weight.zero_()
    tokens = tokens_of()
    x = model.embedding.weight[tokens]
    expected = x / x.pow(2).mean(-1, keepdim=True).sqrt() @ model.head.weight.T
    assert relative(model.logits(tokens), expected) < 1e-13


def test_last_state_of_post_ln_has_unit_rms() -> None:
    design = make_design("post-ln", 3)
    last, _, _ = drive(design, 5 * randn(2, 4, 16), random_branches(6, 16))
    rms = last.pow(2).mean(-1).sqrt()
    torch.testing.assert_close(rms, torch.ones_like(rms), rtol=1e-12, atol=0)


@pytest.mark.parametrize("sublayer", [0, 1, 3])
def test_sandwich_does_not_see_the_scale_of_the_output_projection(sublayer: int) -> None:
    model = make_model("sandwich-ln", shape_of(3))
    perturb(model)
    block = model.blocks[sublayer // 2]
    weight = block.mlp.down.weight if sublayer % 2 else block.attention.out.weight
    tokens = tokens_of()
    results = []
    for factor in (1.0, 7.0):
        with torch.no_grad():
            weight *= factor
        logits = model.logits(tokens)
        direction = randn(*logits.shape)
        results.append((logits, torch.autograd.grad((logits * direction).sum(), weight)[0]))
    (before, gradient), (after, scaled) = results
    assert relative(after, before) < 1e-12
    assert relative(7 * scaled, gradient) < 1e-11


def test_lns_halves_the_branch_input_from_block_4_to_block_16() -> None:
    design, base = make_design("lns", 16), make_design("pre-ln", 16)
    x = randn(1, 3, 16)
    for sublayer in (0, 1):  # both sublayers of a block
        first = read_scale(design, sublayer, x)
        assert torch.equal(first, read_scale(base, sublayer, x))  # b = 1
        fourth, last = (read_scale(design, 2 * (b - 1) + sublayer, x) for b in (4, 16))
        torch.testing.assert_close(fourth, first / 2, rtol=1e-15, atol=0)
        torch.testing.assert_close(last, fourth / 2, rtol=1e-15, atol=0)


def test_lns_factor_is_no_tensor_that_a_meta_build_could_wipe() -> None:
    with torch.device("meta"):
        design = residuals.build("lns", stack_of(shape_of(9)))
    assert not list(design.buffers())
    assert dict(design.named_parameters()).keys() == {f"norms.{k}.gain" for k in range(18)}
    design.to_empty(device="cpu")
    residuals.initialise(design, 0)
    x = randn(1, 1, 16, dtype=torch.float32)
    rms = read_scale(design, 16, x).pow(2).mean().sqrt()
    assert rms.item() == pytest.approx(1 / 3, rel=1e-5)


@pytest.mark.parametrize("num_blocks", [2, 12, 100])
def test_deepnorm_scales_balance(num_blocks: int) -> None:
    design = residuals.build("deepnorm", stack_of(shape_of(num_blocks)))
    alpha, beta = design.alpha, design.init_gain("v", 16, 16)
    assert alpha == pytest.approx((2 * num_blocks) ** 0.25, rel=1e-14)
    assert 2 * num_blocks * (beta / alpha) ** 2 == pytest.approx(0.5, rel=1e-14)


def test_deepnorm_at_alpha_one_is_post_ln_with_the_same_kind_of_norm() -> None:
    model = make_model("deepnorm", shape_of(3))
    base = make_model("post-ln", shape_of(3), mean_centred=True)
    perturb(base)
    model.load_state_dict(base.state_dict())
    tokens = tokens_of()
    assert relative(model.logits(tokens), base.logits(tokens)) > 1e-3
    model.design.alpha = 1.0
    assert torch.equal(model.logits(tokens), base.logits(tokens))


def matrices_of(model: Decoder) -> dict[str, Tensor]:
    block = model.blocks[0]
    return {
        **block.attention.qkv.matrices(),
        **block.attention.out.matrices(),
        **block.mlp.gate_up.matrices(),
        **block.mlp.down.matrices(),
        "embedding": model.embedding.weight,
        "head": model.head.weight,
    }


BRANCH = {"v", "o", "gate", "up", "down"}


@pytest.mark.parametrize(
    ("name", "options", "beta"),
    [
        ("deepnorm", {}, (8 * 2) ** -0.25),
        ("deeploop", {}, (8 * 2) ** -0.5),
    ],
)
def test_beta_scales_value_output_and_mlp_only(
    name: str, options: dict[str, Any], beta: float
) -> None:
    shape = shape_of(2, 64, heads=2, kv_heads=1)
    model, base = (
        matrices_of(make_model(n, shape, **o)) for n, o in ((name, options), ("pre-ln", {}))
    )
    assert set(model) == BRANCH | {"q", "k", "embedding", "head"}
    for role, matrix in model.items():
        ratio = (matrix.std() / base[role].std()).item()
        assert ratio == pytest.approx(beta if role in BRANCH else 1.0, rel=1e-5), role


def test_xavier_gives_the_papers_deviations() -> None:
    shape = shape_of(2, 64, heads=4, kv_heads=1)
    cut = 0.98658  # a normal cut at three deviations keeps this share of its deviation
    beta = (8 * 2) ** -0.25
    for role, matrix in matrices_of(make_model("deepnorm", shape, init="xavier")).items():
        if role in ("embedding", "head"):
            expected = 0.02
        else:
            expected = sqrt(2 / sum(matrix.shape)) * (beta if role in BRANCH else 1.0)
        assert matrix.std().item() == pytest.approx(cut * expected, rel=0.08), role


def input_gradient_ratio(design: Design) -> float:
    """‖gradient at the input‖ / ‖gradient at the last state‖, branches unit noise, detached.

    Input, noise and gradient are made orthogonal to each other and to the mean, as they are in the
    limit of infinite width; then the formulas hold exactly.
    """
    L, d = design.stack.num_sublayers, design.stack.d_model
    vectors = torch.cat((torch.ones(1, d, dtype=torch.float64), randn(L + 2, d)))
    unit_rms = torch.linalg.qr(vectors.T).Q.T[1:] * sqrt(d)
    x = unit_rms[0].clone().requires_grad_()
    direction, noise = unit_rms[1], unit_rms[2:]
    last, _, _ = drive(design, x, lambda k, _: noise[k])
    (gradient,) = torch.autograd.grad((last * direction).sum(), x)
    return (gradient.norm() / direction.norm()).item()


@pytest.mark.parametrize(
    ("name", "options", "formula"),
    [
        # Of the outer norms, each shrinks the gradient by the share of α·x in α·x + F.
        ("keel", {"first_block_rule": False}, lambda L: (1 + L**-2) ** (-L / 2)),
        ("keel", {}, lambda L: 3**-0.5 * (1 + L**-2) ** (-(L - 2) / 2)),
        ("post-ln", {}, lambda L: 2 ** (-L / 2)),
        ("deepnorm", {}, lambda L: (1 + L**-0.5) ** (-L / 2)),
        ("deeploop", {"embedding_norm": False}, lambda L: (1 + 1 / L) ** (-L / 2)),
        ("pre-ln", {}, lambda L: 1.0),
    ],
)
@pytest.mark.parametrize("num_blocks", [2, 12])
def test_input_gradient_follows_its_formula(
    name: str, options: dict[str, Any], formula: Any, num_blocks: int
) -> None:
    design = make_design(name, num_blocks, 64, **options)
    ratio = input_gradient_ratio(design)
    assert ratio == pytest.approx(formula(2 * num_blocks), rel=1e-12)


def test_keel_at_alpha_one_without_inner_norm_and_rule_is_post_ln() -> None:
    model = make_model("keel", shape_of(3), alpha=1.0, inner_norm=False, first_block_rule=False)
    base = make_model("post-ln", shape_of(3))
    perturb(base)
    state = {
        k.replace("design.norms", "design.output_norms"): v for k, v in base.state_dict().items()
    }
    model.load_state_dict(state)
    tokens = tokens_of()
    assert torch.equal(model.logits(tokens), base.logits(tokens))


def test_first_block_of_keel() -> None:
    design = make_design("keel", 3)
    x, y = randn(1, 2, 16), randn(1, 2, 16, seed=1)
    after = design.write(0, 0, (x,), y)[0]
    assert torch.equal(after, x + y)  # plain Pre-LN: no scale, no norm
    second = design.write(1, 1, (x,), y)[0]
    summed = x + y  # α = 1
    torch.testing.assert_close(second, summed / summed.pow(2).mean(-1, keepdim=True).sqrt())
    third = design.write(2, 2, (x,), y)[0]
    summed = 6 * x + y  # α = L, sublayers and not blocks
    torch.testing.assert_close(third, summed / summed.pow(2).mean(-1, keepdim=True).sqrt())


@pytest.mark.parametrize("name", ["keel", "deepnorm", "deeploop", "post-ln"])
def test_scaled_sum_is_not_rounded_to_bf16(name: str) -> None:
    """At α = 128 the spacing of bf16 is 1, and a branch of 0.25 would vanish."""
    stack = stack_of(shape_of(64), eps=1e-6)
    design = residuals.build(name, stack)
    residuals.initialise(design, 0)
    if name != "keel":
        design.alpha = 128.0
    x = randn(1, 1, 16, dtype=torch.float32).bfloat16()
    y = (randn(1, 1, 16, seed=1, dtype=torch.float32) / 4).bfloat16()
    state = design.write(5, 5, (x.float(),), y)[0]
    exact = 128 * x.double() + y.double()
    if name == "deepnorm":
        exact = exact - exact.mean()
    exact = exact / exact.pow(2).mean().sqrt()
    assert state.dtype is torch.float32
    assert relative(state.double(), exact) < 1e-6


@pytest.mark.parametrize(("num_blocks", "rounds"), [(2, 1), (3, 5), (12, 7)])
def test_deeploop_scales_follow_the_unrolled_depth(num_blocks: int, rounds: int) -> None:
    design = residuals.build("deeploop", stack_of(shape_of(num_blocks), rounds=rounds))
    N = num_blocks * rounds
    alpha, beta = design.alpha, design.init_gain("o", 16, 16)
    assert alpha == pytest.approx((2 * N) ** 0.5, rel=1e-14)
    assert beta / alpha == pytest.approx(1 / (4 * N), rel=1e-14)
    # Fully aligned visits, κ = R: bounded by the physical depth alone.
    assert 2 * N * rounds * (beta / alpha) ** 2 == pytest.approx(1 / (8 * num_blocks), rel=1e-14)


def test_deeploop_of_one_round_is_keels_form() -> None:
    shape = shape_of(3)
    model = make_model("deeploop", shape, embedding_norm=False)
    base = make_model("keel", shape, alpha=sqrt(6), first_block_rule=False)
    perturb(base)
    model.load_state_dict(base.state_dict())
    tokens = tokens_of()
    assert torch.equal(model.logits(tokens), base.logits(tokens))


@pytest.mark.parametrize(
    "name", ["pre-ln", "post-ln", "sandwich-ln", "lns", "deepnorm", "deeploop", "hc", "mhc"]
)
def test_tied_stack_is_the_untied_one_with_copied_weights(name: str) -> None:
    """Forward, and the shared gradient is the sum of the copies'."""
    K, R = 2, 3
    tied, untied = make_model(name, shape_of(K), rounds=R), make_model(name, shape_of(K * R))
    perturb(tied)

    def original(parameter: str) -> str:
        """The tied parameter that the untied one copies: block b mod K, sublayer k mod 2K."""
        parts = parameter.split(".")
        numbered = {"blocks": K, "norms": 2 * K, "output_norms": 2 * K, "routing": 2 * K}
        for i, part in enumerate(parts[:-1]):
            if part in numbered and parts[i + 1].isdigit():
                parts[i + 1] = str(int(parts[i + 1]) % numbered[part])
        return ".".join(parts)

    shared = dict(tied.named_parameters())
    with torch.no_grad():
        for parameter, p in untied.named_parameters():
            p.copy_(shared[original(parameter)])
    tokens = tokens_of()
    logits = [m.logits(tokens) for m in (tied, untied)]
    assert relative(logits[1], logits[0]) < 1e-12
    direction = randn(*logits[0].shape)
    found, copies = (
        gradients((x * direction).sum(), m) for x, m in zip(logits, (tied, untied), strict=True)
    )
    for parameter, gradient in found.items():
        summed = sum(copies[p] for p in copies if original(p) == parameter)
        assert isinstance(summed, Tensor)
        assert relative(summed, gradient) < 1e-10, parameter
