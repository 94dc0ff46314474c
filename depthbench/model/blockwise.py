"""Causal attention that keeps its probabilities, computed one block of queries at a time.

On a CPU and for short sequences this beats the fused kernel, which recomputes the probabilities in
its backward pass; and further slots can stand under the same softmax. The (B·H, T, T + S) matrices
are never touched above the diagonal blocks.
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
    """n stands for B·H, S for further slots; p (n, T, T + S) holds all probabilities."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, slots: Tensor | None
    ) -> tuple[Tensor, ...]:
        B, T, H, d = q.shape
        rotary = Rotary(cos, sin)
        q_nTd = rotary.into_heads(q, 1 / sqrt(d)).flatten(0, 1)
        k_nTd = rotary.into_heads(k).flatten(0, 1)
        v_nTd = v.transpose(1, 2).contiguous().flatten(0, 1)
        slots_nTS = q.new_empty(B * H, T, 0) if slots is None else slots.flatten(0, 1)
        future = q.new_full((BLOCK, BLOCK), float("-inf")).triu_(1)
        p = q.new_empty(B * H, T, T + slots_nTS.shape[-1])
        outputs = []
        for start, end in _blocks(T):
            logits = torch.bmm(q_nTd[:, start:end], k_nTd[:, :end].transpose(1, 2))
            logits[:, :, start:].add_(future[: end - start, : end - start])
            if slots is not None:
                logits = torch.cat((logits, slots_nTS[:, start:end]), -1)
            block = torch.softmax(logits, -1)
            p[:, start:end, :end] = block[:, :, :end]
            p[:, start:end, T:] = block[:, :, end:]
            outputs.append(torch.bmm(block[:, :, :end], v_nTd[:, :end]))
        o = torch.cat(outputs, 1).view(B, H, T, d).transpose(1, 2)
        return o, p[:, :, T:].unflatten(0, (B, H)), q_nTd, k_nTd, v_nTd, p

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[3], inputs[4], output[0], *output[2:])

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, do: Tensor, dslot_p: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        cos, sin, o, q_nTd, k_nTd, v_nTd, p = ctx.saved_tensors
        B, T, H, d = do.shape
        do_nTd = do.transpose(1, 2).reshape(B * H, T, d)
        along = torch.linalg.vecdot(do, o).transpose(1, 2).reshape(B * H, T, 1)
        dslots = None
        if dslot_p is not None:
            slot_p, dslots = p[:, :, T:], dslot_p.flatten(0, 1)
            along += (slot_p * dslots).sum(-1, keepdim=True)
            dslots = (dslots - along).mul_(slot_p).unflatten(0, (B, H))
        dlogits = q_nTd.new_empty(B * H, T, T)
        # Products go to tensors of their own: into a strided slice they run one matrix at a time.
        dq, dk, dv = [], [], []
        for start, end in _blocks(T):
            block = torch.bmm(do_nTd[:, start:end], v_nTd[:, :end].transpose(1, 2))
            block.sub_(along[:, start:end]).mul_(p[:, start:end, :end])
            dlogits[:, start:end, :end] = block
            dq.append(torch.bmm(block, k_nTd[:, :end]))
        for start, end in _blocks(T):
            dk.append(torch.bmm(dlogits[:, start:, start:end].transpose(1, 2), q_nTd[:, start:]))
            dv.append(torch.bmm(p[:, start:, start:end].transpose(1, 2), do_nTd[:, start:]))
        dq_BHTd, dk_BHTd, dv_BHTd = (torch.cat(x, 1).view(B, H, T, d) for x in (dq, dk, dv))
        rotary = Rotary(cos, sin)
        dq_BTHd = rotary.out_of_heads(dq_BHTd, 1 / sqrt(d))
        return dq_BTHd, rotary.out_of_heads(dk_BHTd), dv_BHTd.transpose(1, 2), None, None, dslots


def blockwise(
    q_BTHd: Tensor, k_BTHd: Tensor, v_BTHd: Tensor, rotary: Rotary, slots_BHTS: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Causal attention of unrotated q and k, with `slots` as further logits of the same softmax.

    Returns the sum over positions (B, T, H, d) and the probabilities of the slots (B, H, T, S).
    """
    inputs = (q_BTHd, k_BTHd, v_BTHd, rotary.cos, rotary.sin, slots_BHTS)
    o, slot_p, *_ = _Blockwise.apply(*inputs)  # type: ignore[no-untyped-call]
    return o, slot_p
