"""The equations of the norm and scaling family."""

from collections.abc import Callable
from math import floor, sqrt

from torch import Tensor

from tests.residuals.naive import (
    Run,
    Segment,
    attention_output,
    joint_attention,
    layer_norm,
    qkv,
    rms,
    sublayer,
)

Constant = Callable[[Segment, int], float]
"""Of the executed visit, counted from the first of the whole model."""


def norm_design(
    *,
    alpha: Constant = lambda s, executed: 1.0,
    inner: bool = True,
    divide: Constant = lambda s, executed: 1.0,
    branch_norm: bool = False,
    outer: Callable[[Segment, int, int], Tensor | None] = lambda s, executed, k: None,
    centred: bool = False,
    embedding_norm: bool = False,
) -> Run:
    """`x ← N_out(α·x + N_branch(F(N_in(x)/divide)))`; `outer` is the outer norm's gain, if any."""

    def run(s: Segment, x: Tensor) -> Tensor:
        if embedding_norm:
            x = rms(x, s.eps) * s.design.embedding_norm.gain
        for visit, k in s.visits():
            executed = 2 * s.before + visit
            h = s.normed(k, x) if inner else x
            y = sublayer(s, k, h / divide(s, executed))
            if branch_norm:
                y = rms(y, s.eps) * s.design.output_norms[k].gain
            x = alpha(s, executed) * x + y
            gain = outer(s, executed, k)
            if gain is not None:
                x = (layer_norm(x, s.eps) if centred else rms(x, s.eps)) * gain
        return x

    return run


def own_norm(s: Segment, executed: int, k: int) -> Tensor:
    return s.design.norms[k].gain


def output_norm(s: Segment, executed: int, k: int) -> Tensor:
    return s.design.output_norms[k].gain


def keel_norm(s: Segment, executed: int, k: int) -> Tensor | None:
    """The first attention executed has none, and none of its own if it is not visited again."""
    if executed == 0:
        return None
    number = k - (s.num_sublayers - len(s.design.output_norms))
    assert number >= 0
    return s.design.output_norms[number].gain


pre_ln = norm_design()
post_ln = norm_design(inner=False, outer=own_norm)
centred_post_ln = norm_design(inner=False, outer=own_norm, centred=True)
sandwich_ln = norm_design(branch_norm=True)
peri_ln = norm_design(branch_norm=True, embedding_norm=True)
lns = norm_design(divide=lambda s, executed: sqrt(executed // 2 + 1))
deepnorm = norm_design(
    alpha=lambda s, executed: (2 * s.depth) ** 0.25, inner=False, outer=own_norm, centred=True
)
keel_without_rule = norm_design(alpha=lambda s, executed: 2.0 * s.depth, outer=output_norm)
deeploop = norm_design(
    alpha=lambda s, executed: sqrt(2 * s.depth), outer=output_norm, embedding_norm=True
)
deeploop_without_embedding_norm = norm_design(
    alpha=lambda s, executed: sqrt(2 * s.depth), outer=output_norm
)


def keel(alpha: Constant = lambda s, executed: 2.0 * s.depth) -> Run:
    return norm_design(
        alpha=lambda s, executed: 1.0 if executed < 2 else alpha(s, executed), outer=keel_norm
    )


def layerscale(s: Segment, x: Tensor) -> Tensor:
    for _, k in s.visits():
        x = x + s.design.scales[k] * sublayer(s, k, s.normed(k, x))
    return x


def rezero(s: Segment, x: Tensor) -> Tensor:
    for _, k in s.visits():
        x = x + s.design.scales[k, 0] * sublayer(s, k, x)
    return x


def mix_ln(share: float) -> Run:
    def run(s: Segment, x: Tensor) -> Tensor:
        for visit, k in s.visits():
            if s.before + visit // 2 < floor(share * s.depth):
                x = s.normed(k, x + sublayer(s, k, x))
            else:
                x = x + sublayer(s, k, s.normed(k, x))
        return x

    return run


def hybrid_norm(star: bool = False) -> Run:
    def run(s: Segment, x: Tensor) -> Tensor:
        design = s.design
        for visit, k in s.visits():
            first = star and s.before + visit // 2 == 0
            if k % 2:
                normed = rms(x, s.eps) * design.norms[k // 2].gain
                x = (x if first else normed) + sublayer(s, k, normed)
            else:
                h = rms(x, s.eps) * design.first_norm.gain if first else x
                normed_qkv = (
                    rms(part, s.eps) * norms[k // 2].gain
                    for part, norms in zip(
                        qkv(s, k, h),
                        (design.q_norms, design.k_norms, design.v_norms),
                        strict=True,
                    )
                )
                x = x + attention_output(s, k, joint_attention(*normed_qkv, []))
        return x

    return run
