"""Causal attention that keeps its exponentials, computed one block of queries at a time.

On a CPU and for short sequences this beats the fused kernel, which recomputes them in its backward
pass. Nothing is computed or kept above the diagonal blocks. The exponentials are powers of two,
which a CPU computes twice as fast; only the outputs and their gradients are divided by their sums.
"""

from collections.abc import Iterator
from math import log, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from depthbench.model.rotary import Rotary

BLOCK = 64
LN_2 = log(2)


def _blocks(length: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


class _Blockwise(torch.autograd.Function):
    """n stands for B·H; a block's exponentials are (n, rows, keys up to it)."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        B, T, H, d = q.shape
        rotary = Rotary(cos, sin)
        q_nTd = rotary.into_heads(q, 1 / (LN_2 * sqrt(d))).flatten(0, 1)
        k_nTd = rotary.into_heads(k).flatten(0, 1)
        v_nTd = v.transpose(1, 2).contiguous().flatten(0, 1)
        future = q.new_full((BLOCK, BLOCK), float("-inf")).triu_(1)
        outputs, tops, sums, exponentials = [], [], [], []
        for start, end in _blocks(T):
            logits = torch.bmm(q_nTd[:, start:end], k_nTd[:, :end].transpose(1, 2))
            logits[:, :, start:].add_(future[: end - start, : end - start])
            top = logits.amax(-1, keepdim=True)
            e = logits.sub_(top).exp2_()
            outputs.append(torch.bmm(e, v_nTd[:, :end]))
            tops.append(top)
            sums.append(e.sum(-1, keepdim=True))
            exponentials.append(e)
        sum_nT1 = torch.cat(sums, 1)
        total_nT1 = sum_nT1.log2().add_(torch.cat(tops, 1)).mul_(LN_2)
        r_nT1 = sum_nT1.reciprocal_()
        o_BTHd = torch.empty_like(q)
        torch.mul(
            torch.cat(outputs, 1).view(B, H, T, d),
            r_nT1.view(B, H, T, 1),
            out=o_BTHd.transpose(1, 2),
        )
        total_BTH = total_nT1.view(B, H, T).transpose(1, 2)
        return o_BTHd, total_BTH, q_nTd, k_nTd, v_nTd, r_nT1, *exponentials

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[3:], output[0], *output[2:])

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, do: Tensor | None, dtotal: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        cos, sin, o, q_nTd, k_nTd, v_nTd, r_nT1, *exponentials = ctx.saved_tensors
        B, T, H, d = o.shape
        do = torch.zeros_like(o) if do is None else do
        along_BTH = (do * o) @ do.new_ones(d)
        along_BTH = along_BTH if dtotal is None else along_BTH - dtotal
        # With the factor 1/Σ here, products with exponentials are those with probabilities.
        along_nT1 = along_BTH.transpose(1, 2).reshape(B * H, T, 1).mul_(r_nT1)
        do_nTd = (do.transpose(1, 2) * r_nT1.view(B, H, T, 1)).reshape(B * H, T, d)
        dq = []
        dk = dv = torch.empty(0)
        # From the last block, whose keys are all, to the first: the sums start complete. Products
        # go to tensors of their own: into a strided slice they would run one matrix at a time.
        for (start, end), e in reversed(list(zip(_blocks(T), exponentials, strict=True))):
            do_block, q_block = do_nTd[:, start:end], q_nTd[:, start:end]
            dlogits = torch.bmm(do_block, v_nTd[:, :end].transpose(1, 2))
            dlogits.sub_(along_nT1[:, start:end]).mul_(e)
            dq.append(torch.bmm(dlogits, k_nTd[:, :end]))
            dk_block = torch.bmm(dlogits.transpose(1, 2), q_block)
            dv_block = torch.bmm(e.transpose(1, 2), do_block)
            if end == T:
                dk, dv = dk_block, dv_block
            else:
                dk[:, :end] += dk_block
                dv[:, :end] += dv_block
        rotary = Rotary(cos, sin)
        dq_BTHd = rotary.out_of_heads(torch.cat(dq[::-1], 1).view(B, H, T, d), 1 / sqrt(d))
        dk_BTHd = rotary.out_of_heads(dk.view(B, H, T, d), LN_2)
        return dq_BTHd, dk_BTHd, dv.view(B, H, T, d).transpose(1, 2), None, None


def blockwise(
    q_BTHd: Tensor, k_BTHd: Tensor, v_BTHd: Tensor, rotary: Rotary
) -> tuple[Tensor, Tensor]:
    """Causal attention of unrotated q and k (B, T, H, d), and log Σ exp of its logits (B, T, H)."""
    inputs = (q_BTHd, k_BTHd, v_BTHd, rotary.cos, rotary.sin)
    o, total, *_ = _Blockwise.apply(*inputs)  # type: ignore[no-untyped-call]
    return o, total
