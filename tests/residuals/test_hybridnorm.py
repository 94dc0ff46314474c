"""HybridNorm in closed form, float64."""

import pytest
import torch
from torch import Tensor

import residuals
from tests.residuals.kit import make_model, perturb, randn, relative, shape_of, stack_of, tokens_of


def unit(x: Tensor) -> Tensor:
    return x / x.pow(2).mean(-1, keepdim=True).sqrt()


def test_the_mlp_keeps_the_normed_stream_as_its_residual() -> None:
    design = make_model("hybridnorm", shape_of(3)).design
    x, y = 5 * randn(1, 2, 16), randn(1, 2, 16, seed=1)
    for block in range(3):
        read, carry = design.read(2 * block, 2 * block, (x,))
        assert torch.equal(read, x)
        assert torch.equal(design.write(2 * block, 2 * block, carry, y)[0], x + y)
        read, carry = design.read(2 * block + 1, 2 * block + 1, (x,))
        assert relative(read, unit(x)) < 1e-13
        assert (
            relative(design.write(2 * block + 1, 2 * block + 1, carry, y)[0], unit(x) + y) < 1e-13
        )


def test_first_block_of_hybridnorm_star_is_pre_ln() -> None:
    design = make_model("hybridnorm", shape_of(3), pre_norm_first=True).design
    x, y = 5 * randn(1, 2, 16), randn(1, 2, 16, seed=1)
    for k in (0, 1):
        read, carry = design.read(k, k, (x,))
        assert relative(read, unit(x)) < 1e-13
        assert torch.equal(design.write(k, k, carry, y)[0], x + y)
    assert torch.equal(design.read(2, 2, (x,))[0], x)
    assert relative(design.read(3, 3, (x,))[1][0], unit(x)) < 1e-13


@pytest.mark.parametrize("role", ["q", "k", "v"])
def test_attention_does_not_see_the_scale_of_a_head(role: str) -> None:
    """One head of queries, keys or values times seven, at eps zero in effect."""
    model = make_model("hybridnorm", shape_of(2))
    perturb(model)
    tokens = tokens_of()
    before = model.logits(tokens)
    with torch.no_grad():
        model.blocks[1].attention.qkv.matrices()[role][:8] *= 7.0  # the first of two heads
    assert relative(model.logits(tokens), before) < 1e-12
    with torch.no_grad():
        model.blocks[1].attention.qkv.matrices()[role][:4] *= 7.0  # half of it
    assert relative(model.logits(tokens), before) > 1e-4


def test_parameters_by_hand() -> None:
    """Of two blocks: one norm of the stream and three of a head, where Pre-LN has two norms."""
    plain, star = (
        residuals.build("hybridnorm", stack_of(shape_of(2)), pre_norm_first=flag)
        for flag in (False, True)
    )
    assert plain.num_extra_params() == 2 * (16 + 3 * 8) - 4 * 16
    assert star.num_extra_params() == plain.num_extra_params() + 16
    assert (plain.routing_flops().matmul, plain.routing_flops().mixing) == (0, 0)
