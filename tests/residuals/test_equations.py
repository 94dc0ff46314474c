"""Every design against its equations, written out naively: logits and all gradients, in float64."""

from typing import Any

import pytest
import torch

import residuals
from tests.residuals.equations import CASES, IDS
from tests.residuals.kit import gradients, make_model, perturb, randn, relative, shape_of, tokens_of
from tests.residuals.naive import Run, logits

K = 3


def test_every_registered_design_has_its_equations() -> None:
    assert {name for name, _, _ in CASES} == set(residuals.names())


@pytest.mark.parametrize(("name", "options", "run"), CASES, ids=IDS)
def test_design_is_its_equations(name: str, options: dict[str, Any], run: Run) -> None:
    eps = 1e-5  # large enough that a forgotten eps shows
    model = make_model(name, shape_of(K, 8), eps=eps, **options)
    perturb(model)
    tokens = tokens_of(2, 5)
    actual, expected = model.logits(tokens), logits(model, tokens, run)
    assert relative(actual, expected) < 1e-11
    weight = randn(*actual.shape)
    found, wanted = (gradients((x * weight).sum(), model) for x in (actual, expected))
    for parameter, gradient in wanted.items():
        assert relative(found[parameter], gradient) < 1e-9, parameter


GROUPED = ["hc", "moda", "block-attnres", "value-residual", "hybridnorm"]


@pytest.mark.parametrize("name", GROUPED)
def test_design_is_its_equations_with_grouped_queries(name: str) -> None:
    run = next(run for case, _, run in CASES if case == name)
    model = make_model(name, shape_of(K, 16, heads=4, kv_heads=2), eps=1e-5)
    perturb(model)
    tokens = tokens_of(1, 5)
    assert relative(model.logits(tokens), logits(model, tokens, run)) < 1e-11


def test_one_block_of_every_kind_is_pre_ln_in_lns_and_moda() -> None:
    tokens = tokens_of()
    base = make_model("pre-ln", shape_of(1))
    perturb(base)
    for name in ("lns", "moda"):
        model = make_model(name, shape_of(1))
        model.load_state_dict(base.state_dict())
        torch.testing.assert_close(model.logits(tokens), base.logits(tokens), rtol=0, atol=0)
