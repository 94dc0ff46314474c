"""What every registered design must satisfy; a new design is covered by being registered."""

from contextlib import suppress
from typing import Any

import pytest
import torch

import residuals
from depthbench.config import CellConfig
from depthbench.conformance import CHECKS, Subject
from depthbench.conformance.checks import NotAskedError
from depthbench.conformance.costs import counted
from depthbench.conformance.numerics import check_compiled, compiled
from depthbench.ledger import ledger
from residuals.parameters import declared
from tests.kit import cell_config
from tests.residuals.kit import (
    VOCAB,
    make_model,
    shape_of,
    stack_of,
    tokens_of,
)

DESIGNS = residuals.names()
SHAPE = shape_of(3)


def has_products(name: str) -> bool:
    return residuals.build(name, stack_of(SHAPE)).routing_flops().matmul > 0


every_design = pytest.mark.parametrize("name", DESIGNS)


@every_design
@pytest.mark.parametrize("check", [c.name for c in CHECKS.values() if c.judged and c != compiled])
def test_design_conforms(name: str, check: str) -> None:
    with suppress(NotAskedError):
        assert CHECKS[check].call(Subject.named(name))


@every_design
def test_one_compiled_graph_equals_eager(name: str) -> None:
    """As the check does it; Sinkhorn's 20 iterations take long to trace, and repeat in blocks."""
    check_compiled(Subject.named(name), 1 if name == "mhc" else 2)


@every_design
def test_class_says_what_it_is(name: str) -> None:
    design = residuals.get(name)
    assert design.name == name
    assert design.version >= 1
    assert design.title
    assert design.family
    assert design.paper
    assert design.summary().strip()
    assert residuals.get(f"{name}@{design.version}") is design


def num_parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def cell_of(name: str, **changes: Any) -> CellConfig:
    sizes = {"sequence_length": 16, "steps": 10}
    return cell_config(name, VOCAB, **{"shape": SHAPE.model_dump(), **sizes, **changes})


@every_design
def test_ledger_counts_the_built_model(name: str) -> None:
    totals = ledger(cell_of(name))
    model, base = make_model(name, SHAPE), make_model("pre-ln", SHAPE)
    backbone = num_parameters(base.blocks) + num_parameters(base.design)
    assert totals.parameters == num_parameters(model)
    assert totals.backbone == backbone
    assert totals.added == num_parameters(model) - num_parameters(base)
    assert totals.added_by_design_share == totals.added / backbone
    assert totals.total_flops == totals.train_flops_per_token * 10 * 4 * 16


@pytest.mark.parametrize("name", [n for n in DESIGNS if has_products(n)])
def test_routing_products_are_exactly_the_counted_ones(name: str) -> None:
    """The check allows 1 %; the formulas of this package are exact."""
    shape = shape_of(5, 32, kv_heads=1)
    total, model = counted(Subject.named(name), shape)
    plain, _ = counted(Subject.named("pre-ln"), shape)
    assert total - plain == model.design.routing_flops().matmul


@every_design
def test_gains_are_gains_and_matrices_of_blocks_are_weights(name: str) -> None:
    for full, parameter, rule in declared(make_model(name, SHAPE)):
        if rule.role is residuals.NORM_GAIN or rule.role is residuals.ROUTING_STATIC:
            assert not rule.role.decay, full
        if full.endswith(".gain"):
            assert rule.role is residuals.NORM_GAIN, full
        if not full.startswith("design.") and parameter.ndim == 2:
            assert rule.role is residuals.WEIGHT, full


@every_design
def test_defaults_are_what_is_built_without_options(name: str) -> None:
    tokens = tokens_of()
    default = make_model(name, SHAPE).logits(tokens)
    explicit = make_model(name, SHAPE, **residuals.get(name).option_defaults()).logits(tokens)
    assert torch.equal(default, explicit)
    with pytest.raises(residuals.DesignError, match="no_such_option"):
        residuals.build(name, stack_of(SHAPE), no_such_option=1)


def test_generated_code_equals_eager() -> None:
    """The whole compiler takes half a minute a design: one block of one stands for all."""
    check_compiled(Subject.named("hc"), 1, "inductor")
