"""Designs that are Pre-LN at initialisation: the same logits and gradients of shared weights."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.residuals.kit import gradients, make_model, relative, shape_of, tokens_of

CASES: list[tuple[str, dict[str, Any]]] = [
    ("hc", {}),
    ("hc", {"streams": 3}),
    ("mhc", {}),
    ("mhc", {"residual_mixing": "identity"}),
    ("full-attnres", {}),
    ("block-attnres", {}),
    ("block-attnres", {"group": 4}),  # K = 3 and 5: the last group is half as long
    ("block-attnres", {"group": 3}),  # groups end inside blocks
    ("block-attnres", {"group": 100}),
    ("mhc-lite", {}),
    ("mhc-lite", {"streams": 3}),
    ("denseformer", {}),
    ("denseformer", {"dilation": 2, "period": 3}),
    # These in particular settings only.
    ("value-residual", {"first": 0.0, "own": 1.0}),
    ("value-residual", {"first": 0.0, "own": 1.0, "learnable": False}),
    ("layerscale", {"start": 1.0}),
    ("mix-ln", {"post_share": 0.0}),
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{o}" for n, o in CASES])
@pytest.mark.parametrize("num_blocks", [3, 5])
def test_design_starts_as_pre_ln(name: str, options: dict[str, Any], num_blocks: int) -> None:
    shape = shape_of(num_blocks)
    base, model = make_model("pre-ln", shape), make_model(name, shape, **options)
    tokens, targets = tokens_of(2, 9), tokens_of(2, 9, seed=4)
    found: list[dict[str, torch.Tensor]] = []
    logits = [m.logits(tokens) for m in (base, model)]
    assert relative(logits[1], logits[0]) < 1e-12
    for m, x in zip((base, model), logits, strict=True):
        found.append(gradients(F.cross_entropy(x.flatten(0, 1), targets.flatten()), m))
    expected, actual = found
    assert set(expected) <= set(actual)
    for parameter, gradient in expected.items():
        assert gradient.abs().max() > 0, parameter
        assert relative(actual[parameter], gradient) < 1e-12, parameter


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hc", {"rescale_output": True}),
        ("mhc", {"init": "flat"}),
        ("value-residual", {}),
        ("layerscale", {}),
        ("mix-ln", {"post_share": 0.4}),
    ],
)
def test_other_starts_are_not_pre_ln(name: str, options: dict[str, Any]) -> None:
    """The settings that are said to leave Pre-LN's function do leave it."""
    tokens = tokens_of()
    base = make_model("pre-ln", shape_of(3)).logits(tokens)
    assert relative(make_model(name, shape_of(3), **options).logits(tokens), base) > 1e-4
