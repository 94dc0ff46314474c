"""Sinkhorn normalisation of small matrices, one per token, with its own backward.

The first iteration runs in log space. After it every row sums to one and every column has an entry
of at least 1/m², whatever the logits were; so the rest is safe as alternating scaling of rows and
columns in linear space, which touches two vectors an iteration and not the matrix.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _Scale(torch.autograd.Function):
    """P (t, s, …) → diag(u) P diag(v) after `num` rounds of v = 1/Pᵀu, u = 1/Pv; first u = 1."""

    @staticmethod
    def forward(P: Tensor, num: int) -> tuple[Tensor, ...]:
        us, vs = P.new_empty(num + 1, *P.shape[1:]), P.new_empty(num, *P.shape[1:])
        us[0] = 1
        scaled = torch.empty_like(P)
        column, rows = us.unsqueeze(2).unbind(0), us.unbind(0)
        # Until the end these are the sums, 1/u and 1/v: a division costs less than two calls.
        for i, v in enumerate(vs.unbind(0)):
            torch.sum(torch.div(P, column[i], out=scaled), 0, out=v)
            torch.sum(torch.div(P, v, out=scaled), 1, out=rows[i + 1])
        us.reciprocal_()
        vs.reciprocal_()
        return P * column[num] * vs[num - 1], us, vs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], *output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dR: Tensor, *_: None) -> tuple[Tensor, None]:
        P, us, vs = ctx.saved_tensors
        columns, rows = us.unsqueeze(2).unbind(0), vs.unbind(0)
        us2, vs2 = us.square().unbind(0), vs.square().unbind(0)
        # The gradient may come with another order of axes in memory, which every step would meet.
        dR = dR.contiguous()
        scaled = dR * P
        dP = (dR * columns[-1]).mul_(rows[-1])
        dv, du = (scaled * columns[-1]).sum(0), scaled.mul_(rows[-1]).sum(1)
        for i in reversed(range(len(rows))):
            # The signs of 1/x cancel between the two: da and db stand for −ā and b̄.
            da = du.mul_(us2[i + 1]).unsqueeze(1)
            dP.addcmul_(da, rows[i], value=-1)
            db = torch.mul(P, da, out=scaled).sum(0)
            if i == len(rows) - 1:
                db -= dv  # the last v also scales the result itself
            dP.addcmul_(columns[i], db.mul_(vs2[i]))
            du = torch.mul(P, db, out=scaled).sum(1)
        return dP, None


def sinkhorn(logits: Tensor, iterations: int = 20) -> Tensor:
    """`exp(logits)` with columns, then rows, divided by their sums, `iterations` times.

    The matrix axes (row t, column s) come first: (m, m, …). Rows sum to one, columns to the error
    that the iteration leaves (mHC, arXiv 2512.24880, equation 9).
    """
    first = torch.softmax(torch.log_softmax(logits, 0), 1)
    if iterations == 1:
        return first
    return _Scale.apply(first, iterations - 1)[0]  # type: ignore[no-any-return, no-untyped-call]
