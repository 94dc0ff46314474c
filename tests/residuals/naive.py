"""Sublayers and stacks of them without any of the product's tricks, traced by autograd.

A design's equations, written out in `naive_norms`, `naive_streams` and `naive_access`, are a `Run`:
what a segment of a model makes of x, from the start of its depth state to its read-out. They take
a model for its weights alone and count depth by themselves.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor, nn

from depthbench.config import Shape
from depthbench.model.decoder import Decoder
from depthbench.model.looped import LoopedDecoder, Part
from residuals import Design

THETA = 10_000.0


@dataclass(frozen=True)
class Segment:
    """Blocks with one depth state; `before` of the `depth` executed blocks are run before it."""

    design: Design
    blocks: nn.ModuleList
    shape: Shape
    before: int
    depth: int
    rounds: int = 1

    @property
    def eps(self) -> float:
        return self.design.stack.norm_eps

    @property
    def num_sublayers(self) -> int:
        return 2 * len(self.blocks)

    def visits(self) -> Iterator[tuple[int, int]]:
        """Number of the visit in the segment, and the sublayer visited."""
        for visit in range(self.num_sublayers * self.rounds):
            yield visit, visit % self.num_sublayers

    def normed(self, k: int, x: Tensor) -> Tensor:
        return rms(x, self.eps) * self.design.norms[k].gain


Run = Callable[[Segment, Tensor], Tensor]


def rms(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def layer_norm(x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + eps)


def log_sinkhorn(logits_BTMM: Tensor, iterations: int = 20) -> Tensor:
    """Of (…, row, column): columns first, rows last, in log space under autograd."""
    log_p = logits_BTMM
    for _ in range(iterations):
        log_p = log_p - torch.logsumexp(log_p, -2, keepdim=True)
        log_p = log_p - torch.logsumexp(log_p, -1, keepdim=True)
    return log_p.exp()


def rotate(x_BTHd: Tensor, first: int = 0) -> Tensor:
    """Complex multiplication of the pairs (i, i + d/2) by exp(i·position·θ^(-2i/d))."""
    T, d = x_BTHd.shape[1], x_BTHd.shape[-1]
    position = torch.arange(first, first + T, dtype=torch.float64)
    frequency = torch.tensor([THETA ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    angle = position[:, None, None] * frequency
    pairs = torch.complex(x_BTHd[..., : d // 2], x_BTHd[..., d // 2 :])
    turned = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), -1)


def joint_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slots: list[tuple[Tensor, Tensor]],
    rotate_depth_query: bool = False,
    first: int = 0,
) -> Tensor:
    """One softmax over [positions, slots] for every head and query, written out."""
    B, T, H, d = q.shape
    q_rotated, k_rotated = rotate(q, first), rotate(k, first)
    out = torch.zeros_like(q)
    for h in range(H):
        g = h * k.shape[2] // H
        for t in range(T):
            own = (q_rotated[:, t, None, h] * k_rotated[:, : t + 1, g]).sum(-1)
            depth_q = (q_rotated if rotate_depth_query else q)[:, t, h]
            depth = [(depth_q * key[:, t, g]).sum(-1) for key, _ in slots]
            p = torch.softmax(torch.cat((own, *(x[:, None] for x in depth)), 1) / sqrt(d), 1)
            values = torch.cat((v[:, : t + 1, g], *(val[:, t, None, g] for _, val in slots)), 1)
            out = out.index_put(
                (torch.arange(B), torch.tensor(t), torch.tensor(h)), (p[..., None] * values).sum(1)
            )
    return out


def qkv(model: Decoder | Segment, k: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    matrices = model.blocks[k // 2].attention.qkv.matrices()
    d = model.shape.head_dim
    q, key, v = ((x @ matrices[name].T).unflatten(-1, (-1, d)) for name in ("q", "k", "v"))
    return q, key, v


def attention_output(model: Decoder | Segment, k: int, o_BTHd: Tensor) -> Tensor:
    return o_BTHd.flatten(2) @ model.blocks[k // 2].attention.out.weight.T


def sublayer(model: Decoder | Segment, k: int, x: Tensor) -> Tensor:
    """F of sublayer k: causal attention or SwiGLU, without any norm."""
    if k % 2:
        mlp = model.blocks[k // 2].mlp
        matrices = mlp.gate_up.matrices()
        gate, up = x @ matrices["gate"].T, x @ matrices["up"].T
        return (gate / (1 + torch.exp(-gate)) * up) @ mlp.down.weight.T
    return attention_output(model, k, joint_attention(*qkv(model, k, x), []))


def logits(model: Decoder, tokens: Tensor, run: Run) -> Tensor:
    """Of a plain stack, or of one that is run in rounds as a whole."""
    rounds = model.design.stack.num_rounds
    depth = len(model.blocks) * rounds
    segment = Segment(model.design, model.blocks, model.shape, 0, depth, rounds)
    return head(model, run(segment, model.embedding.weight[tokens]))


def looped_logits(model: LoopedDecoder, tokens: Tensor, run: Run) -> Tensor:
    """Of prelude, core and coda, with linear injection and one core for all loops."""
    (core,) = model.cores
    parts = [model.prelude, *[core] * model.loop.forward, model.coda]
    sizes = [len(part.blocks) if part else 0 for part in parts]

    def part(number: int, x: Tensor) -> Tensor:
        which: Part | None = parts[number]
        if which is None:
            return x
        before = sum(sizes[:number])
        segment = Segment(which.design, which.blocks, model.shape, before, sum(sizes))
        return run(segment, x)

    eps = core.design.stack.norm_eps
    x = part(0, model.embedding.weight[tokens])
    e = s = rms(x, eps) * model.prelude_norm.gain
    for t in range(model.loop.forward):
        u = torch.cat((e, s), -1) @ core.injection.weight.T
        s = rms(part(1 + t, u), eps) * core.norm.gain
    return head(model, part(len(parts) - 1, s))


def head(model: Decoder | LoopedDecoder, x: Tensor) -> Tensor:
    return (rms(x, model.final_norm.eps) * model.final_norm.gain) @ model.head.weight.T
