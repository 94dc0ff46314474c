"""Groups by role, one AdamW update in closed form, the schedule, and the assertions by name."""

from math import cos, pi

import pytest
import torch
from torch import nn

import residuals
from depthbench.config import DesignRef, Optimizer, Shape
from depthbench.model.decoder import Decoder, build_decoder
from depthbench.train.optimizer import (
    assert_each_has_gradient,
    assert_each_once,
    build_optimizer,
    learning_rate,
    set_learning_rate,
)
from residuals import DesignError, Role
from residuals.parameters import Declared, constant

RECIPE = Optimizer(learning_rate=0.01, weight_decay=0.5)
# How the parameters of the twelve designs are called, by what designs.md says of their decay.
DECAYED = ("weight", "dynamic", "phi")
NOT_DECAYED = ("gain", "gains", "key_gains", "queries", "static", "scales", "bias")


def model_of(design: str) -> Decoder:
    shape = Shape(layers=2, d_model=8, ffn=12, heads=2)
    return build_decoder(shape, 16, DesignRef(name=design, version=1), 1e-6, seed=0)


def decay_by_name(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        names[parameter]: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


@pytest.mark.parametrize("design", residuals.names())
def test_matrices_decay_and_gains_and_static_routing_do_not(design) -> None:
    model = model_of(design)
    decay = decay_by_name(model, build_optimizer(model, RECIPE))
    assert decay.keys() == dict(model.named_parameters()).keys()
    for name, value in decay.items():
        last = name.rpartition(".")[2]
        assert last in DECAYED + NOT_DECAYED, f"{name}: say above whether it decays"
        assert value == (0.5 if last in DECAYED else 0.0), name
    backbone = ("embedding.weight", "head.weight", "blocks.1.attention.qkv.weight")
    backbone += ("blocks.0.attention.out.weight", "blocks.0.mlp.down.weight")
    assert all(decay[name] == 0.5 for name in (*backbone, "blocks.1.mlp.gate_up.weight"))


def test_two_updates_equal_the_closed_form() -> None:
    """arXiv 1711.05101: p ← (1 − lr·decay)·p − lr·m̂/(√v̂ + ε), with a rate of its own each."""
    model = model_of("hc")
    optimizer = build_optimizer(model, RECIPE)
    decay = decay_by_name(model, optimizer)
    generator = torch.Generator().manual_seed(0)
    expected, m, v = {}, {}, {}
    for name, parameter in model.named_parameters():
        expected[name] = parameter.detach().double()
        m[name] = v[name] = torch.zeros_like(expected[name])
    for step, rate in enumerate((0.02, 0.005), 1):
        set_learning_rate(optimizer, rate)
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator) * 10.0**-step
            g = parameter.grad.double()
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.95 * v[name] + 0.05 * g * g
            m_hat, v_hat = m[name] / (1 - 0.9**step), v[name] / (1 - 0.95**step)
            shrunk = expected[name] * (1 - rate * decay[name])
            expected[name] = shrunk - rate * m_hat / (v_hat.sqrt() + 1e-8)
        optimizer.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.double(), expected[name], rtol=2e-6, atol=2e-8)


class Fast(Declared):
    def __init__(self) -> None:
        super().__init__()
        self.declare("slow", (2,), Role("slow", decay=False), constant(0.0))
        self.declare("fast", (2,), Role("fast", decay=True, lr_multiplier=4.0), constant(0.0))


def test_a_role_multiplies_the_rate_at_every_step() -> None:
    optimizer = build_optimizer(Fast(), RECIPE)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.04]
    set_learning_rate(optimizer, 0.003)
    assert [group["lr"] for group in optimizer.param_groups] == [0.003, 0.012]


def test_the_schedule_warms_up_and_falls_to_a_tenth() -> None:
    recipe = Optimizer(learning_rate=0.5)
    rates = [learning_rate(step, 200, recipe) for step in range(200)]
    assert rates[0] == pytest.approx(0.5 / 20)  # the first step moves
    assert rates[:20] == pytest.approx([0.5 * n / 20 for n in range(1, 21)])
    assert rates[19] == max(rates) == 0.5  # the end of the warm-up, 10 % of the steps
    assert rates[-1] == pytest.approx(0.05)
    assert rates[19:] == sorted(rates[19:], reverse=True)
    assert len(set(rates[19:])) == 181
    half = 20 + 180 // 2 - 1
    assert rates[half] == pytest.approx((0.5 + 0.05) / 2)
    quarter = 20 + 180 // 4 - 1
    assert rates[quarter] == pytest.approx(0.05 + 0.45 * (1 + cos(pi / 4)) / 2)


def test_the_recipe_of_the_schedule_is_used() -> None:
    recipe = Optimizer(learning_rate=2.0, warmup_fraction=0.5, final_fraction=0.25)
    rates = [learning_rate(step, 8, recipe) for step in range(8)]
    assert rates[:4] == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert rates[-1] == pytest.approx(0.5)
    flat = Optimizer(learning_rate=2.0, warmup_fraction=0.0, final_fraction=1.0)
    assert [learning_rate(step, 5, flat) for step in range(5)] == pytest.approx([2.0] * 5)
    assert learning_rate(0, 1, RECIPE) == RECIPE.learning_rate


def test_a_parameter_that_the_optimiser_lacks_is_named() -> None:
    model = model_of("pre-ln")
    parameters = [p for name, p in model.named_parameters() if name != "blocks.1.mlp.down.weight"]
    with pytest.raises(DesignError, match=r"missing \['blocks\.1\.mlp\.down\.weight'\]"):
        assert_each_once(model, torch.optim.AdamW(parameters))


def test_a_parameter_held_twice_and_a_foreign_one_are_reported() -> None:
    model = model_of("pre-ln")
    optimizer = build_optimizer(model, RECIPE)
    optimizer.param_groups[0]["params"].append(model.head.weight)
    with pytest.raises(DesignError, match=r"repeated \['head\.weight'\]"):
        assert_each_once(model, optimizer)
    optimizer = build_optimizer(model, RECIPE)
    optimizer.param_groups[0]["params"].append(nn.Parameter(torch.zeros(1)))
    with pytest.raises(DesignError, match="foreign 1"):
        assert_each_once(model, optimizer)
    assert_each_once(model, build_optimizer(model, RECIPE))


def test_a_zero_gradient_is_one_and_none_is_named() -> None:
    model = model_of("pre-ln")
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert_each_has_gradient(model)
    model.final_norm.gain.grad = None
    with pytest.raises(DesignError, match=r"final_norm\.gain"):
        assert_each_has_gradient(model)
