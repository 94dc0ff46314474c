"""Skipping and exchanging blocks in the designs that came later; see `reference`."""

from itertools import permutations
from math import floor
from typing import Any

import torch
from torch import Tensor

from tests.probes.reference import Order, Run, Stretch, Trace, streams
from tests.residuals.naive import joint_attention, qkv, rms, sublayer


def scaled(inner: bool) -> Run:
    """`x ← x + s_k∘F(x)`, of the normed stream or of the stream itself. Scales travel."""

    def run(part: Stretch, x: Tensor, order: Order) -> Trace:
        design, eps, trace = part.design, part.design.stack.norm_eps, Trace(z=[x])
        for block in order:
            total = None
            for half in (0, 1) if block is not None else ():
                k = 2 * block + half
                h = rms(x, eps) * design.norms[k].gain if inner else x
                y = sublayer(part, k, h)
                total = y if total is None else total + y
                x = x + design.scales[k] * y
            trace.z.append(x)
            trace.outputs.append(total)
        trace.read = trace.z
        return trace

    return run


def mix_ln(share: float) -> Run:
    """A block takes its kind along: whether it is Post-LN is told by its own place."""

    def run(part: Stretch, x: Tensor, order: Order) -> Trace:
        design, eps, trace = part.design, part.design.stack.norm_eps, Trace(z=[x])
        for block in order:
            total = None
            for half in (0, 1) if block is not None else ():
                k = 2 * block + half
                gain = design.norms[k].gain
                post = part.before + block < floor(share * part.depth)
                y = sublayer(part, k, x if post else rms(x, eps) * gain)
                total = y if total is None else total + y
                x = rms(x + y, eps) * gain if post else x + y
            trace.z.append(x)
            trace.outputs.append(total)
        trace.read = trace.z
        return trace

    return run


def hybrid_norm(star: bool) -> Run:
    """HybridNorm*'s rule stays at the first place; nothing runs under it if that is left out."""

    def run(part: Stretch, x: Tensor, order: Order) -> Trace:
        design, eps, trace = part.design, part.design.stack.norm_eps, Trace(z=[x])
        for place, block in enumerate(order):
            total = None
            if block is not None:
                first = star and part.before + place == 0
                h = rms(x, eps) * design.first_norm.gain if first else x
                kinds = (design.q_norms, design.k_norms, design.v_norms)
                heads = [
                    rms(each, eps) * norms[block].gain
                    for each, norms in zip(qkv(part, 2 * block, h), kinds, strict=True)
                ]
                o = joint_attention(*heads, [])
                attended = o.flatten(2) @ part.blocks[block].attention.out.weight.T
                x = x + attended
                normed = rms(x, eps) * design.norms[block].gain
                y = sublayer(part, 2 * block + 1, normed)
                x = (x if first else normed) + y
                total = attended + y
            trace.z.append(x)
            trace.outputs.append(total)
        trace.read = trace.z
        return trace

    return run


def value_residual(part: Stretch, x: Tensor, order: Order) -> Trace:
    """V_1 is of whatever block runs first. A block without λ finds those of its place."""
    design, eps, trace = part.design, part.design.stack.norm_eps, Trace(z=[x])
    first_values = None
    for place, block in enumerate(order):
        total = None
        if block is not None:
            k = 2 * block
            q, key, v = qkv(part, k, rms(x, eps) * design.norms[k].gain)
            if first_values is None:
                first_values = v
            else:
                of_first, of_own = design.scales[(block or place) - 1]
                v = of_first * first_values + of_own * v
            o = joint_attention(q, key, v, [])
            attended = o.flatten(2) @ part.blocks[block].attention.out.weight.T
            x = x + attended
            y = sublayer(part, k + 1, rms(x, eps) * design.norms[k + 1].gain)
            x = x + y
            total = attended + y
        trace.z.append(x)
        trace.outputs.append(total)
    trace.read = trace.z
    return trace


def dense_former(dilation: int = 1, period: int = 1) -> Run:
    """Weights belong to places; a block left out is the identity."""

    def run(part: Stretch, x: Tensor, order: Order) -> Trace:
        design, eps, trace, read = part.design, part.design.stack.norm_eps, Trace(z=[x]), 0
        made = [x]
        for i, block in enumerate(order, 1):
            total = None
            for half in (0, 1) if block is not None else ():
                k = 2 * block + half
                y = sublayer(part, k, rms(x, eps) * design.norms[k].gain)
                total = y if total is None else total + y
                x = x + y
            made.append(x)
            if i % period == 0:
                chosen = [j for j in range(i + 1) if (i - j) % dilation == 0]
                x = sum(design.static[read + n] * made[j] for n, j in enumerate(chosen))
                read += len(chosen)
            trace.z.append(x)
            trace.outputs.append(total)
        trace.read = trace.z
        return trace

    return run


def _mhc_lite(part: Stretch, k: int, H: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    routing, m = part.design.routing[k], len(H)
    r = rms(torch.cat(H, -1), part.design.stack.norm_eps)
    rows = (slice(0, m), slice(m, 2 * m), slice(2 * m, None))
    pre, post, res = (
        routing.gains[g] * (r @ routing.phi[group].T) + routing.bias[group]
        for g, group in enumerate(rows)
    )
    weights = torch.softmax(res, -1)
    carried = torch.zeros(*weights.shape[:-1], m, m, dtype=weights.dtype)  # (s, t)
    for n, order in enumerate(permutations(range(m))):
        for t, s in enumerate(order):
            carried[..., s, t] += weights[..., n]
    return torch.sigmoid(pre), carried, 2 * torch.sigmoid(post)


CASES: list[tuple[str, dict[str, Any], Run]] = [
    ("layerscale", {}, scaled(inner=True)),
    ("rezero", {}, scaled(inner=False)),
    ("mix-ln", {"post_share": 0.5}, mix_ln(0.5)),
    ("hybridnorm", {}, hybrid_norm(star=False)),
    ("hybridnorm", {"pre_norm_first": True}, hybrid_norm(star=True)),
    ("mhc-lite", {}, streams(_mhc_lite, mean=True)),
    ("value-residual", {}, value_residual),
    ("denseformer", {}, dense_former()),
    ("denseformer", {"dilation": 2, "period": 2}, dense_former(2, 2)),
]
