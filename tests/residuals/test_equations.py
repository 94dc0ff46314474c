"""Every design against its equations, written out naively: logits and all gradients, in float64."""

from collections.abc import Callable
from math import sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

from depthbench.model.decoder import Decoder
from tests.residuals import naive
from tests.residuals.kit import gradients, make_model, perturb, randn, relative, shape_of, tokens_of

K = 3
L = 2 * K
Reference = Callable[[Decoder, Tensor], Tensor]


def norm(**changes: Any) -> Reference:
    return lambda model, tokens: naive.norm_design(model, tokens, **changes)


def attn_res(group: int) -> Reference:
    return lambda model, tokens: naive.attention_residuals(model, tokens, group)


EVERY = list(range(L))
KEEL = {"alpha": [1.0, 1.0] + [float(L)] * (L - 2), "outer": [None, *range(L - 1)]}
DEEPNORM = {"alpha": [(2 * K) ** 0.25] * L, "inner": False, "outer": EVERY, "centred": True}
DEEPLOOP = {"alpha": [sqrt(2 * K)] * L, "outer": EVERY}
CASES: list[tuple[str, dict[str, Any], Reference]] = [
    ("pre-ln", {}, norm()),
    ("post-ln", {}, norm(inner=False, outer=EVERY)),
    ("post-ln", {"mean_centred": True}, norm(inner=False, outer=EVERY, centred=True)),
    ("sandwich-ln", {}, norm(branch_norm=True)),
    ("sandwich-ln", {"embedding_norm": True}, norm(branch_norm=True, embedding_norm=True)),
    ("lns", {}, norm(divide=[sqrt(k // 2 + 1) for k in EVERY])),
    ("deepnorm", {}, norm(**DEEPNORM)),
    ("deepnorm", {"init": "xavier"}, norm(**DEEPNORM)),
    ("keel", {}, norm(**KEEL)),
    ("keel", {"first_block_rule": False}, norm(alpha=[float(L)] * L, outer=EVERY)),
    ("keel", {"alpha": 3.0}, norm(**(KEEL | {"alpha": [1.0, 1.0] + [3.0] * (L - 2)}))),
    ("deeploop", {}, norm(**DEEPLOOP, embedding_norm=True)),
    ("deeploop", {"embedding_norm": False}, norm(**DEEPLOOP)),
    ("hc", {}, naive.hyper_connections),
    ("hc", {"tanh": False, "streams": 3}, naive.hyper_connections),
    ("mhc", {}, naive.manifold_hyper_connections),
    ("mhc", {"init": "flat", "streams": 2}, naive.manifold_hyper_connections),
    ("full-attnres", {}, attn_res(1)),
    ("block-attnres", {}, attn_res(2)),
    ("block-attnres", {"group": 1}, attn_res(1)),
    ("block-attnres", {"group": 4}, attn_res(4)),
    ("block-attnres", {"group": 3}, attn_res(3)),
    ("block-attnres", {"group": 20}, attn_res(20)),
    ("moda", {}, naive.mixture_of_depths),
    (
        "moda",
        {"depthbench_rope": True},
        lambda model, tokens: naive.mixture_of_depths(model, tokens, rotate_depth_query=True),
    ),
    (
        "moda",
        {"post_norm": True},
        lambda model, tokens: naive.mixture_of_depths(model, tokens, post_norm=True),
    ),
]


@pytest.mark.parametrize(
    ("name", "options", "reference"), CASES, ids=[f"{name}-{options}" for name, options, _ in CASES]
)
def test_design_is_its_equations(name: str, options: dict[str, Any], reference: Reference) -> None:
    eps = 1e-5  # large enough that a forgotten eps shows
    model = make_model(name, shape_of(K, 8), eps=eps, **options)
    perturb(model)
    tokens = tokens_of(2, 5)
    actual, expected = model.logits(tokens), reference(model, tokens)
    assert relative(actual, expected) < 1e-11
    weight = randn(*actual.shape)
    found, wanted = (gradients((x * weight).sum(), model) for x in (actual, expected))
    for parameter, gradient in wanted.items():
        assert relative(found[parameter], gradient) < 1e-9, parameter


@pytest.mark.parametrize(
    ("name", "options", "reference"),
    [
        ("hc", {}, naive.hyper_connections),
        ("moda", {}, naive.mixture_of_depths),
        ("block-attnres", {"group": 4}, attn_res(4)),
    ],
    ids=["hc", "moda", "block-attnres"],
)
def test_design_is_its_equations_with_grouped_queries(
    name: str, options: dict[str, Any], reference: Reference
) -> None:
    model = make_model(name, shape_of(K, 16, heads=4, kv_heads=2), eps=1e-5, **options)
    perturb(model)
    tokens = tokens_of(1, 5)
    assert relative(model.logits(tokens), reference(model, tokens)) < 1e-11


def test_identity_mixing_of_mhc_leaves_the_carried_streams_alone() -> None:
    model = make_model("mhc", shape_of(K, 8), residual_mixing="identity")
    perturb(model)
    tokens = tokens_of(1, 5)
    expected = naive.manifold_hyper_connections(model, tokens, identity_mixing=True)
    assert relative(model.logits(tokens), expected) < 1e-11


def test_one_block_of_every_kind_is_pre_ln_in_lns_and_moda() -> None:
    tokens = tokens_of()
    base = make_model("pre-ln", shape_of(1))
    perturb(base)
    for name in ("lns", "moda"):
        model = make_model(name, shape_of(1))
        model.load_state_dict(base.state_dict())
        torch.testing.assert_close(model.logits(tokens), base.logits(tokens), rtol=0, atol=0)
