"""Every design with the equations that it must be: name, options, and the stack written out."""

from typing import Any

from tests.residuals import naive_access as access
from tests.residuals import naive_norms as norms
from tests.residuals import naive_streams as streams
from tests.residuals.naive import Run

CASES: list[tuple[str, dict[str, Any], Run]] = [
    ("pre-ln", {}, norms.pre_ln),
    ("post-ln", {}, norms.post_ln),
    ("post-ln", {"mean_centred": True}, norms.centred_post_ln),
    ("sandwich-ln", {}, norms.sandwich_ln),
    ("sandwich-ln", {"embedding_norm": True}, norms.peri_ln),
    ("lns", {}, norms.lns),
    ("deepnorm", {}, norms.deepnorm),
    ("deepnorm", {"init": "xavier"}, norms.deepnorm),
    ("keel", {}, norms.keel()),
    ("keel", {"first_block_rule": False}, norms.keel_without_rule),
    ("keel", {"alpha": 3.0}, norms.keel(lambda s, executed: 3.0)),
    ("deeploop", {}, norms.deeploop),
    ("deeploop", {"embedding_norm": False}, norms.deeploop_without_embedding_norm),
    ("hc", {}, streams.hyper_connections),
    ("hc", {"tanh": False, "streams": 3}, streams.hyper_connections),
    ("mhc", {}, streams.manifold_hyper_connections),
    ("mhc", {"init": "flat", "streams": 2}, streams.manifold_hyper_connections),
    ("mhc", {"residual_mixing": "identity"}, streams.identity_hyper_connections),
    ("full-attnres", {}, access.attention_residuals(1)),
    ("block-attnres", {}, access.attention_residuals()),
    ("block-attnres", {"group": 1}, access.attention_residuals(1)),
    ("block-attnres", {"group": 4}, access.attention_residuals(4)),
    ("block-attnres", {"group": 3}, access.attention_residuals(3)),
    ("block-attnres", {"group": 20}, access.attention_residuals(20)),
    ("moda", {}, access.mixture_of_depths()),
    ("moda", {"depthbench_rope": True}, access.mixture_of_depths(rotate_depth_query=True)),
    ("moda", {"post_norm": True}, access.mixture_of_depths(post_norm=True)),
    ("layerscale", {}, norms.layerscale),
    ("rezero", {}, norms.rezero),
    ("mix-ln", {}, norms.mix_ln(0.25)),
    ("mix-ln", {"post_share": 0.7}, norms.mix_ln(0.7)),
    ("hybridnorm", {}, norms.hybrid_norm()),
    ("hybridnorm", {"pre_norm_first": True}, norms.hybrid_norm(star=True)),
    ("mhc-lite", {}, streams.mhc_lite),
    ("mhc-lite", {"streams": 3}, streams.mhc_lite),
    ("value-residual", {}, access.value_residual()),
    ("value-residual", {"learnable": False}, access.value_residual((0.5, 0.5))),
    (
        "value-residual",
        {"learnable": False, "first": 2.0, "own": 1.0},
        access.value_residual((2.0, 1.0)),
    ),
    ("denseformer", {}, access.dense_former()),
    ("denseformer", {"dilation": 2}, access.dense_former(dilation=2)),
    ("denseformer", {"period": 2}, access.dense_former(period=2)),
    ("denseformer", {"dilation": 2, "period": 3}, access.dense_former(2, 3)),
]
IDS = [f"{name}-{options}" for name, options, _ in CASES]
