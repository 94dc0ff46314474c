"""LayerScale and ReZero in closed form, float64."""

import pytest
import torch

import residuals
from tests.residuals.kit import (
    gradients,
    make_model,
    perturb,
    randn,
    relative,
    shape_of,
    stack_of,
    tokens_of,
)

K = 3


def test_gains_of_one_are_pre_ln() -> None:
    model, base = make_model("layerscale", shape_of(K)), make_model("pre-ln", shape_of(K))
    perturb(base)
    weights = base.state_dict() | {"design.scales": torch.ones(2 * K, 16)}
    model.load_state_dict(weights)
    tokens = tokens_of()
    assert relative(model.logits(tokens), base.logits(tokens)) < 1e-13


def test_a_gain_is_of_one_channel_of_one_sublayer() -> None:
    design = make_model("layerscale", shape_of(K)).design
    x, y = randn(1, 2, 16), randn(1, 2, 16, seed=1)
    with torch.no_grad():
        design.scales[3, 5] = 7.0
    added = design.write(3, 3, (x,), y)[0] - x
    expected = 0.1 * y
    expected[..., 5] *= 70
    assert relative(added, expected) < 1e-7  # 0.1 is drawn in fp32
    assert relative(design.write(2, 2, (x,), y)[0] - x, 0.1 * y) < 1e-7


def test_rezero_starts_as_the_identity() -> None:
    """Logits are the head of the normed embedding, and every matrix of the stack rests."""
    model = make_model("rezero", shape_of(K))
    perturb(model.blocks)
    tokens = tokens_of()
    x = model.embedding.weight[tokens]
    expected = x / x.pow(2).mean(-1, keepdim=True).sqrt() @ model.head.weight.T
    logits = model.logits(tokens)
    assert relative(logits, expected) < 1e-13
    found = gradients((logits * randn(*logits.shape)).sum(), model)
    for name, gradient in found.items():
        assert bool(gradient.any()) != name.startswith("blocks."), name
    assert found["design.scales"].abs().min() > 0


def test_rezero_reads_the_stream_as_it_is_and_weighs_what_it_adds() -> None:
    design = make_model("rezero", shape_of(K)).design
    x, y = randn(1, 2, 16), randn(1, 2, 16, seed=1)
    assert torch.equal(design.read(1, 1, (x,))[0], x)
    with torch.no_grad():
        design.scales[:, 0] = torch.arange(2 * K) / 2
    for k in range(2 * K):
        assert relative(design.write(k, k, (x,), y)[0], x + k / 2 * y) < 1e-14


@pytest.mark.parametrize(("name", "extra"), [("layerscale", 6 * 16), ("rezero", 6 - 6 * 16)])
def test_parameters_and_flops_by_hand(name: str, extra: int) -> None:
    """Six sublayers: a gain a channel; or one each, in the place of a norm."""
    design = residuals.build(name, stack_of(shape_of(K)))
    assert design.num_extra_params() == extra
    flops = residuals.build(name, stack_of(shape_of(K), rounds=2)).routing_flops()
    assert (flops.matmul, flops.mixing) == (0, 12 * 16)
