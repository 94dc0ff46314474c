"""Four designs are Pre-LN at initialisation: the same logits and gradients of shared weights."""

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


@pytest.mark.parametrize("name", ["hc", "mhc"])
def test_rescaled_or_flat_starts_are_not_pre_ln(name: str) -> None:
    """The options that are said to leave Pre-LN's function do leave it."""
    options: dict[str, Any] = {"rescale_output": True} if name == "hc" else {"init": "flat"}
    tokens = tokens_of()
    base = make_model("pre-ln", shape_of(3)).logits(tokens)
    assert relative(make_model(name, shape_of(3), **options).logits(tokens), base) > 1e-4
