"""What skipping and exchanging blocks means, from the equations of every family, without a design's
own code: sublayers run in a given order and every sum over depth is written out again.

`order[p]` is the place whose block runs at place p, None if the block of that place is left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from depthbench.config import Shape
from depthbench.model.decoder import Decoder, LanguageModel
from depthbench.model.looped import Core, LoopedDecoder, Part
from residuals import Design
from tests.residuals.naive import joint_attention, layer_norm, log_sinkhorn, qkv, rms, sublayer

Order = Sequence[int | None]


@dataclass
class Trace:
    """Depth states z_0 … z_K, read-outs of them, and summed branch outputs (None if left out)."""

    z: list[Tensor] = field(default_factory=list)
    read: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor | None] = field(default_factory=list)

    def logits(self, model: LanguageModel, place: int = -1) -> Tensor:
        normed = rms(self.read[place], model.final_norm.eps) * model.final_norm.gain
        return normed @ model.head.weight.T

    def loss(self, model: LanguageModel, targets: Tensor) -> float:
        log_p = torch.log_softmax(self.logits(model), -1)
        return -log_p.gather(-1, targets.unsqueeze(-1)).mean().item()


@dataclass(frozen=True)
class Stretch:
    """Blocks that share a state: `before` blocks have been run, of `depth` in the whole model."""

    design: Design
    blocks: nn.ModuleList
    shape: Shape
    before: int
    depth: int


Run = Callable[[Stretch, Tensor, Order], Trace]


def whole(run: Run, model: LanguageModel, tokens: Tensor, order: Order) -> Trace:
    """A plain stack, or the loop written out: every part from its own start to its own finish."""
    x = model.embedding.weight[tokens]
    if isinstance(model, Decoder):
        K = len(model.blocks)
        return run(Stretch(model.design, model.blocks, model.shape, 0, K), x, order)
    assert isinstance(model, LoopedDecoder)
    trace, eps, done = Trace(), model.final_norm.eps, 0

    def part(owner: Part, x: Tensor, gain: Tensor | None) -> Tensor:
        nonlocal done
        num = len(owner.blocks)
        own = [None if p is None else p - done for p in order[done : done + num]]
        found = run(Stretch(owner.design, owner.blocks, model.shape, done, len(order)), x, own)
        found.read = [r if gain is None else rms(r, eps) * gain for r in found.read]
        # Of two parts that meet only the later has a state at that place.
        trace.z[done:], trace.read[done:] = found.z, found.read
        trace.outputs += found.outputs
        done += num
        return found.read[-1]

    gain = model.prelude_norm.gain
    x = rms(x, eps) * gain if model.prelude is None else part(model.prelude, x, gain)
    e = s = x
    for t in range(model.loop.forward):
        core = model.cores[t % len(model.cores)]
        assert isinstance(core, Core)
        match model.loop.injection:
            case "linear":
                W_e, W_s = core.injection.weight.chunk(2, 1)
                u = e @ W_e.T + s @ W_s.T
            case "add":
                u = e + s
            case "none":
                u = s
        s = part(core, u, core.norm.gain)
    if model.coda is not None:
        part(model.coda, s, None)
    return trace


def norms(
    *,
    alpha: Callable[[int], float] = lambda depth: 1.0,
    inner: bool = True,
    scaled: bool = False,
    branch: bool = False,
    outer: Callable[[Stretch, int, int, int], Tensor | None] = lambda *_: None,
    centred: bool = False,
    embedding_norm: bool = False,
    rule: bool = False,
) -> Run:
    """`x ← N_out(α·x + N_branch(F(N_in(x)/√b)))`.

    `outer(part, place, half, block)` is the gain of the outer norm; `rule` is KEEL's first block.
    """

    def run(part: Stretch, x: Tensor, order: Order) -> Trace:
        design, eps, trace = part.design, part.design.stack.norm_eps, Trace()
        if embedding_norm:
            x = rms(x, eps) * design.embedding_norm.gain
        trace.z.append(x)
        for place, block in enumerate(order):
            total = None
            for half in (0, 1) if block is not None else ():
                k = 2 * block + half
                h = rms(x, eps) * design.norms[k].gain if inner else x
                y = sublayer(part, k, h / (sqrt(part.before + block + 1) if scaled else 1.0))
                total = y if total is None else total + y
                if branch:
                    y = rms(y, eps) * design.output_norms[k].gain
                x = (1.0 if rule and part.before + place == 0 else alpha(part.depth)) * x + y
                gain = outer(part, place, half, block)
                if gain is not None:
                    x = (layer_norm(x, eps) if centred else rms(x, eps)) * gain
            trace.z.append(x)
            trace.outputs.append(total)
        trace.read = trace.z
        return trace

    return run


def own_norm(part: Stretch, place: int, half: int, block: int) -> Tensor:
    return part.design.norms[2 * block + half].gain


def own_output_norm(part: Stretch, place: int, half: int, block: int) -> Tensor:
    return part.design.output_norms[2 * block + half].gain


def keel_norm(part: Stretch, place: int, half: int, block: int) -> Tensor | None:
    """The first attention has none; the block that has none for its attention finds the place's."""
    if (part.before + place, half) == (0, 0):
        return None
    none = 2 * len(part.blocks) - len(part.design.output_norms)  # 1 if the first is run only once
    owner = place if none and (block, half) == (0, 0) else block
    return part.design.output_norms[2 * owner + half - none].gain


def _hc(part: Stretch, k: int, streams: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """a (B, T, s), A (B, T, s, t) and β (B, T, s)."""
    design, routing = part.design, part.design.routing[k]
    H = torch.stack([rms(h, design.stack.norm_eps) for h in streams], -2)
    squash = torch.tanh(H @ routing.dynamic.T)  # (B, T, s, row)
    a = routing.static[0] + routing.scales[0] * squash[..., 0]
    A = routing.static[1:-1].T + routing.scales[0] * squash[..., 1:-1]
    return a, A, routing.static[-1] + routing.scales[1] * squash[..., -1]


def _mhc(part: Stretch, k: int, streams: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    design, routing, m = part.design, part.design.routing[k], part.design.streams
    r = rms(torch.cat(streams, -1), design.stack.norm_eps)
    rows = (slice(0, m), slice(m, 2 * m), slice(2 * m, None))
    pre, post, res = (
        routing.gains[g] * (r @ routing.phi[part].T) + routing.bias[part]
        for g, part in enumerate(rows)
    )
    mixing = log_sinkhorn(res.unflatten(-1, (m, m)))
    return torch.sigmoid(pre), mixing.transpose(-1, -2), 2 * torch.sigmoid(post)


def streams(coefficients: Callable[..., tuple[Tensor, Tensor, Tensor]], mean: bool) -> Run:
    def run(part: Stretch, x: Tensor, order: Order) -> Trace:
        design, eps, trace = part.design, part.design.stack.norm_eps, Trace()
        H = [x for _ in range(design.streams)]

        def note(total: Tensor | None) -> None:
            trace.z.append(torch.cat(H, -1))
            trace.read.append(sum(H) / (len(H) if mean else 1))
            trace.outputs.append(total)

        note(None)
        for block in order:
            total = None
            for half in (0, 1) if block is not None else ():
                k = 2 * block + half
                a, A, beta = coefficients(part, k, H)
                x = sum(a[..., s, None] * H[s] for s in range(len(H)))
                y = sublayer(part, k, rms(x, eps) * design.norms[k].gain)
                total = y if total is None else total + y
                H = [
                    sum(A[..., s, t, None] * H[s] for s in range(len(H))) + beta[..., t, None] * y
                    for t in range(len(H))
                ]
            note(total)
        del trace.outputs[0]
        return trace

    return run


hyper_connections = streams(_hc, mean=False)
manifold_hyper_connections = streams(_mhc, mean=True)


def attention_residuals(group: int, copy: bool = False) -> Run:
    """Groups are of visits in the order of execution; what was left out is in none of them."""

    def run(part: Stretch, x: Tensor, order: Order) -> Trace:
        design, eps, trace = part.design, part.design.stack.norm_eps, Trace()
        embedding = x
        outputs: dict[int, Tensor] = {}

        def sources() -> list[Tensor]:
            groups: dict[int, Tensor] = {}
            for visit, y in outputs.items():
                g = visit // group
                groups[g] = groups[g] + y if g in groups else y
            return [embedding, *groups.values()]

        def mix(consumer: int) -> Tensor:
            values = torch.stack(sources())
            keys = rms(values, eps) * design.key_gains[consumer]
            weights = torch.softmax((keys * design.queries[consumer]).sum(-1), 0)
            return (weights[..., None] * values).sum(0)

        trace.z.append(x)
        for place, block in enumerate(order):
            if block is None:
                # Nothing is added; the next boundary keeps its own consumer.
                x = sources()[-1] if copy else mix(2 * place + 1)
                trace.outputs.append(None)
            else:
                k = 2 * block
                outputs[2 * place] = sublayer(part, k, rms(x, eps) * design.norms[k].gain)
                # Consumer c reads for sublayer c + 1: 2b + 0 the MLP's, 2b + 1 the right boundary.
                h = rms(mix(k), eps) * design.norms[k + 1].gain
                outputs[2 * place + 1] = sublayer(part, k + 1, h)
                trace.outputs.append(outputs[2 * place] + outputs[2 * place + 1])
                x = mix(k + 1)
            trace.z.append(x)
        trace.read = trace.z
        return trace

    return run


def mixture_of_depths(rotate_depth_query: bool = False, post_norm: bool = False) -> Run:
    def run(part: Stretch, x: Tensor, order: Order) -> Trace:
        design, eps, trace = part.design, part.design.stack.norm_eps, Trace()
        sizes = (2, part.shape.kv_heads, part.shape.head_dim)
        slots: list[tuple[Tensor, Tensor]] = []
        trace.z.append(x)
        for block in order:
            total = None
            for half in (0, 1) if block is not None else ():
                k = 2 * block + half
                h = x if post_norm else rms(x, eps) * design.norms[k].gain
                if half:
                    y = sublayer(part, k, h)
                    if block < len(part.blocks) - 1:  # the last block has no map
                        written = (h @ design.maps[block].weight.T).unflatten(-1, sizes)
                        slots.append((written[:, :, 0], written[:, :, 1]))
                else:
                    q, key, v = qkv(part, k, h)
                    o = joint_attention(q, key, v, slots, rotate_depth_query)
                    y = o.flatten(2) @ part.blocks[block].attention.out.weight.T
                    slots.append((key, v))
                total = y if total is None else total + y
                x = x + (rms(y, eps) * design.norms[k].gain if post_norm else y)
            trace.z.append(x)
            trace.outputs.append(total)
        trace.read = trace.z
        return trace

    return run


DEEPNORM = norms(alpha=lambda K: (2 * K) ** 0.25, inner=False, outer=own_norm, centred=True)
CASES: list[tuple[str, dict[str, Any], Run]] = [
    ("pre-ln", {}, norms()),
    ("post-ln", {}, norms(inner=False, outer=own_norm)),
    ("sandwich-ln", {}, norms(branch=True)),
    ("sandwich-ln", {"embedding_norm": True}, norms(branch=True, embedding_norm=True)),
    ("lns", {}, norms(scaled=True)),
    ("deepnorm", {}, DEEPNORM),
    ("keel", {}, norms(alpha=lambda K: 2.0 * K, outer=keel_norm, rule=True)),
    ("keel", {"first_block_rule": False}, norms(alpha=lambda K: 2.0 * K, outer=own_output_norm)),
    (
        "deeploop",
        {},
        norms(alpha=lambda K: sqrt(2 * K), outer=own_output_norm, embedding_norm=True),
    ),
    ("hc", {}, hyper_connections),
    ("mhc", {}, manifold_hyper_connections),
    ("full-attnres", {}, attention_residuals(1)),
    ("block-attnres", {}, attention_residuals(2)),
    ("block-attnres", {"group": 3}, attention_residuals(3)),
    ("block-attnres", {"group": 6}, attention_residuals(6)),
    ("moda", {}, mixture_of_depths()),
    ("moda", {"depthbench_rope": True}, mixture_of_depths(rotate_depth_query=True)),
    ("moda", {"post_norm": True}, mixture_of_depths(post_norm=True)),
]
IDS = ["-".join([name, *map(str, options)]) for name, options, _ in CASES]
