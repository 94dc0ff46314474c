"""Initial values as a pure function of (seed, name), and the declaration of every parameter."""

import pytest
import torch
from torch import nn

import residuals
from depthbench.model.decoder import Decoder
from residuals.parameters import (
    BASE_STD,
    ROUTING_DYNAMIC,
    WEIGHT,
    Declared,
    constant,
    declared,
    exactly,
    initialise,
    truncated_normal,
)
from tests.residuals.kit import VOCAB, make_model, shape_of, stack_of


def drawn(seed: int, *shape: int, std: float = BASE_STD) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return truncated_normal(std)(torch.Size(shape), generator)


def test_normal_is_cut_at_three_deviations() -> None:
    values = drawn(0, 400_000)
    assert values.abs().max() <= 3 * BASE_STD
    assert values.abs().max() > 2.9 * BASE_STD
    # A standard normal cut at 3 has variance 1 − 6·φ(3)/(2Φ(3) − 1) = 0.97333…
    assert values.std().item() == pytest.approx(BASE_STD * 0.97333**0.5, rel=5e-3)
    assert abs(values.mean().item()) < 1e-4
    assert torch.equal(drawn(3, 8, std=1.0), drawn(3, 8, std=1.0))
    assert not torch.equal(drawn(3, 8), drawn(4, 8))


def test_backbone_matrices_have_the_base_deviation() -> None:
    model = make_model("pre-ln", shape_of(2, 64))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            assert parameter.std().item() == pytest.approx(0.98658 * 0.02, rel=0.05), name
            assert parameter.abs().max() <= 0.06, name
        else:
            assert torch.equal(parameter, torch.ones_like(parameter)), name


def test_no_two_matrices_are_drawn_alike() -> None:
    model = make_model("moda", shape_of(3, 16))
    firsts = [
        part.flatten()[0].item()
        for _, parameter, rule in declared(model)
        if parameter.ndim == 2
        for part in parameter.split([rows for rows, _ in rule.parts.values()])
    ]
    assert len(set(firsts)) == len(firsts)


class Fused(Declared):
    def __init__(self, first: str = "q") -> None:
        super().__init__()
        parts = {first: (4, truncated_normal(1.0)), "v": (2, truncated_normal(1.0))}
        self.declare_fused("weight", (3,), WEIGHT, parts)


def test_parts_of_a_fused_matrix_are_drawn_by_their_own_names() -> None:
    a, b = Fused(), Fused("k")
    for module in (a, b):
        initialise(module, 0)
    assert torch.equal(a.weight[4:], b.weight[4:])
    assert not torch.equal(a.weight[:4], b.weight[:4])


def test_values_do_not_depend_on_what_else_a_model_owns() -> None:
    alone, beside = nn.ModuleDict({"x": Fused()}), nn.ModuleDict({"a": Fused(), "x": Fused()})
    for module in (alone, beside):
        initialise(module, 5)
    assert torch.equal(alone["x"].weight, beside["x"].weight)
    before = alone["x"].weight.clone()
    initialise(alone, 6)
    assert not torch.equal(alone["x"].weight, before)


def test_rules_fill_in_the_parameters_own_dtype() -> None:
    class Mixed(Declared):
        def __init__(self) -> None:
            super().__init__()
            self.declare("c", (2, 2), WEIGHT, constant(0.25))
            self.declare("e", (2, 2), ROUTING_DYNAMIC, exactly(torch.eye(2)))

    module = Mixed().double()
    initialise(module, 0)
    assert torch.equal(module.c, torch.full((2, 2), 0.25).double())
    assert torch.equal(module.e, torch.eye(2).double())


def test_undeclared_parameter_is_refused_by_name() -> None:
    model = make_model("pre-ln")
    model.blocks[1].mlp.scale = nn.Parameter(torch.ones(3))
    for use in (lambda: list(declared(model)), lambda: initialise(model, 0)):
        with pytest.raises(residuals.DesignError, match=r"blocks\.1\.mlp\.scale"):
            use()
    design = residuals.build("hc", stack_of(shape_of()))
    design.gate = nn.Parameter(torch.zeros(1))  # set past `declare` on a Declared module
    with pytest.raises(residuals.DesignError, match=r"design\.gate"):
        initialise(Decoder(shape_of(), VOCAB, design), 0)
