"""The equations of designs in which later blocks read what earlier ones wrote."""

from math import ceil

import torch
from torch import Tensor

from tests.residuals.naive import (
    Run,
    Segment,
    attention_output,
    joint_attention,
    qkv,
    rms,
    sublayer,
)


def attention_residuals(group: int = 0) -> Run:
    """All sources stacked again in every consumer; sums of groups recomputed from the outputs.

    The first sublayer has a query if it is visited again; the row after the last sublayer's is that
    of the read-out. By default at most eight groups of whole blocks.
    """

    def run(s: Segment, x: Tensor) -> Tensor:
        size = group or 2 * ceil(s.num_sublayers * s.rounds / 2 / 8)
        outputs: list[Tensor] = []

        def mix(sublayer_read: int) -> Tensor:
            row = sublayer_read - (s.rounds == 1)
            groups = [outputs[i : i + size] for i in range(0, len(outputs), size)]
            sources = torch.stack([x, *(torch.stack(g).sum(0) for g in groups)])
            keys = rms(sources, s.eps) * s.design.key_gains[row]
            weights = torch.softmax((keys * s.design.queries[row]).sum(-1), 0)
            return (weights[..., None] * sources).sum(0)

        for visit, k in s.visits():
            read = mix(k) if visit else x
            outputs.append(sublayer(s, k, s.normed(k, read)))
        return mix(s.num_sublayers)

    return run


def mixture_of_depths(rotate_depth_query: bool = False, post_norm: bool = False) -> Run:
    def run(s: Segment, x: Tensor) -> Tensor:
        slots: list[tuple[Tensor, Tensor]] = []
        sizes = (2, s.shape.kv_heads, s.shape.head_dim)
        for visit, k in s.visits():
            h = x if post_norm else s.normed(k, x)
            if k % 2:
                y = sublayer(s, k, h)
                if visit < s.num_sublayers * s.rounds - 1:  # the last has no reader
                    written = (h @ s.design.maps[k // 2].weight.T).unflatten(-1, sizes)
                    slots.append((written[:, :, 0], written[:, :, 1]))
            else:
                q, key, v = qkv(s, k, h)
                y = attention_output(s, k, joint_attention(q, key, v, slots, rotate_depth_query))
                slots.append((key, v))
            x = x + (s.normed(k, y) if post_norm else y)
        return x

    return run


def value_residual(fixed: tuple[float, float] | None = None) -> Run:
    """`V_b ← λ_b1·V_1 + λ_b2·V_b`; rows of λ are of the blocks that ever mix."""

    def run(s: Segment, x: Tensor) -> Tensor:
        first_values = None
        for _, k in s.visits():
            h = s.normed(k, x)
            if k % 2:
                x = x + sublayer(s, k, h)
                continue
            q, key, v = qkv(s, k, h)
            if first_values is None:
                first_values = v
            else:
                row = k // 2 - (s.rounds == 1)
                of_first, of_own = fixed or s.design.scales[row]
                v = of_first * first_values + of_own * v
            x = x + attention_output(s, k, joint_attention(q, key, v, []))
        return x

    return run


def dense_former(dilation: int = 1, period: int = 1) -> Run:
    """`X_i = B_i(Y_{i−1})`, `Y_i = Σ_j α_ij X_j`, with α read off row by row, j ascending."""

    def run(s: Segment, x: Tensor) -> Tensor:
        num_blocks = len(s.blocks) * s.rounds
        alpha = torch.eye(1 + num_blocks, dtype=x.dtype)
        read = 0
        for i in range(1, 1 + num_blocks):
            if i % period == 0:
                for j in range(1 + i):
                    alpha[i, j] = 0
                    if (i - j) % dilation == 0:
                        alpha = alpha.index_put(
                            (torch.tensor(i), torch.tensor(j)), s.design.static[read]
                        )
                        read += 1
        made, Y = [x], x
        for i in range(1, 1 + num_blocks):
            for k in (2 * ((i - 1) % len(s.blocks)), 2 * ((i - 1) % len(s.blocks)) + 1):
                Y = Y + sublayer(s, k, s.normed(k, Y))
            made.append(Y)
            Y = sum(alpha[i, j] * X for j, X in enumerate(made))
        return Y

    return run
