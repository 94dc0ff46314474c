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
        for i in range(num):
            torch.sum(P * us[i].unsqueeze(1), 0, out=vs[i]).reciprocal_()
            torch.sum(P * vs[i], 1, out=us[i + 1]).reciprocal_()
        return P * us[num].unsqueeze(1) * vs[num - 1], us, vs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], *output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dR: Tensor, *_: None) -> tuple[Tensor, None]:
        P, us, vs = ctx.saved_tensors
        minus_us2, minus_vs2 = -us.square(), -vs.square()
        u, v = us[-1].unsqueeze(1), vs[-1]
        dP = dR * u * v
        weighted = dR * P
        du, dv = (weighted * v).sum(1), (weighted * u).sum(0)
        for i in reversed(range(len(vs))):
            da = du * minus_us2[i + 1]
            dP.addcmul_(da.unsqueeze(1), vs[i])
            through = (P * da.unsqueeze(1)).sum(0)
            # The last v also scales the result itself.
            db = (dv + through if i == len(vs) - 1 else through).mul_(minus_vs2[i])
            dP.addcmul_(us[i].unsqueeze(1), db)
            du = (P * db).sum(1)
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
