"""Causal attention that keeps its probabilities, computed one block of queries at a time.

On a CPU and for short sequences this beats the fused kernel, which recomputes the probabilities in
its backward pass; and further slots can stand under the same softmax. Nothing is computed or kept
above the diagonal blocks.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from depthbench.model.rotary import Rotary

BLOCK = 64


def _blocks(length: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


class _Blockwise(torch.autograd.Function):
    """n stands for B·H; a block's probabilities are (n, rows, keys up to it + S further slots)."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, slots: Tensor | None
    ) -> tuple[Tensor, ...]:
        B, T, H, d = q.shape
        rotary = Rotary(cos, sin)
        q_nTd = rotary.into_heads(q, 1 / sqrt(d)).flatten(0, 1)
        k_nTd = rotary.into_heads(k).flatten(0, 1)
        v_nTd = v.transpose(1, 2).contiguous().flatten(0, 1)
        slots_nTS = None if slots is None else slots.flatten(0, 1)
        future = q.new_full((BLOCK, BLOCK), float("-inf")).triu_(1)
        outputs, slot_p, probabilities = [], [], []
        for start, end in _blocks(T):
            logits = torch.bmm(q_nTd[:, start:end], k_nTd[:, :end].transpose(1, 2))
            logits[:, :, start:].add_(future[: end - start, : end - start])
            if slots_nTS is not None:
                logits = torch.cat((logits, slots_nTS[:, start:end]), -1)
            p = torch.softmax(logits, -1)
            outputs.append(torch.bmm(p[:, :, :end], v_nTd[:, :end]))
            slot_p.append(p[:, :, end:])
            probabilities.append(p)
        o = torch.cat(outputs, 1).view(B, H, T, d).transpose(1, 2)
        return o, torch.cat(slot_p, 1).view(B, H, T, -1), q_nTd, k_nTd, v_nTd, *probabilities

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.shape = inputs[0].shape
        ctx.has_slots = inputs[5] is not None
        ctx.save_for_backward(inputs[3], inputs[4], *output[2:])

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, do: Tensor | None, dslot_p: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        cos, sin, q_nTd, k_nTd, v_nTd, *probabilities = ctx.saved_tensors
        B, T, H, d = ctx.shape
        do = cos.new_zeros(ctx.shape) if do is None else do
        do_nTd = do.transpose(1, 2).reshape(B * H, T, d)
        dq, dslots = [], []
        dk = dv = torch.empty(0)
        # From the last block, whose keys are all, to the first: the sums start complete. Products
        # go to tensors of their own: into a strided slice they would run one matrix at a time.
        for (start, end), p in reversed(list(zip(_blocks(T), probabilities, strict=True))):
            do_block, q_block = do_nTd[:, start:end], q_nTd[:, start:end]
            dp = torch.bmm(do_block, v_nTd[:, :end].transpose(1, 2))
            if ctx.has_slots:
                dslot_block = dp.new_zeros(B * H, end - start, p.shape[-1] - end)
                if dslot_p is not None:
                    dslot_block = dslot_p.flatten(0, 1)[:, start:end]
                dp = torch.cat((dp, dslot_block), -1)
            dlogits = torch._softmax_backward_data(dp, p, -1, p.dtype)
            dslots.append(dlogits[:, :, end:])
            dseq = dlogits[:, :, :end]
            dq.append(torch.bmm(dseq, k_nTd[:, :end]))
            dk_block = torch.bmm(dseq.transpose(1, 2), q_block)
            dv_block = torch.bmm(p[:, :, :end].transpose(1, 2), do_block)
            if end == T:
                dk, dv = dk_block, dv_block
            else:
                dk[:, :end] += dk_block
                dv[:, :end] += dv_block
        rotary = Rotary(cos, sin)
        dq_BTHd = rotary.out_of_heads(torch.cat(dq[::-1], 1).view(B, H, T, d), 1 / sqrt(d))
        dk_BTHd = rotary.out_of_heads(dk.view(B, H, T, d))
        dv_BTHd = dv.view(B, H, T, d).transpose(1, 2)
        dslots_BHTS = torch.cat(dslots[::-1], 1).view(B, H, T, -1) if ctx.has_slots else None
        return dq_BTHd, dk_BTHd, dv_BTHd, None, None, dslots_BHTS


def blockwise(
    q_BTHd: Tensor, k_BTHd: Tensor, v_BTHd: Tensor, rotary: Rotary, slots_BHTS: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Causal attention of unrotated q and k, with `slots` as further logits of the same softmax.

    Returns the sum over positions (B, T, H, d) and the probabilities of the slots (B, H, T, S).
    """
    inputs = (q_BTHd, k_BTHd, v_BTHd, rotary.cos, rotary.sin, slots_BHTS)
    o, slot_p, *_ = _Blockwise.apply(*inputs)  # type: ignore[no-untyped-call]
    return o, slot_p
