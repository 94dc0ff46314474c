"""Sums and products over a list of per-token tensors, that store nothing but the list.

Stacking the list, or letting autograd trace the sum, would store every term again for every
consumer: memory quadratic in depth.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from residuals.norms import inverse_rms, without_autocast

Values = tuple[Tensor, ...]


def _weighted_sum(weights_S: Tensor, values: Values) -> Tensor:
    total = weights_S[0].unsqueeze(-1) * values[0]
    for weight, value in zip(weights_S[1:].unsqueeze(-1).unbind(0), values[1:], strict=True):
        total.addcmul_(weight, value)
    return total


def _dots(x: Tensor, values: Values) -> Tensor:
    return torch.stack([torch.linalg.vecdot(x, value) for value in values])


def _outer(weights_S: Tensor, x: Tensor, values: Values) -> Values:
    terms = (weight * x for weight in weights_S.unsqueeze(-1).unbind(0))
    return tuple(term.sum_to_size(value.shape) for term, value in zip(terms, values, strict=True))


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(weights_S: Tensor, *values: Tensor) -> Tensor:
        return _weighted_sum(weights_S, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dtotal: Tensor) -> Values:
        weights_S, *values = ctx.saved_tensors
        return _dots(dtotal, values), *_outer(weights_S, dtotal, values)


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, *values: Tensor) -> Tensor:
        return _dots(x, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ddots: Tensor) -> Values:
        x, *values = ctx.saved_tensors
        return _weighted_sum(ddots, values), *_outer(ddots, x, values)


class _NormedProduct(torch.autograd.Function):
    @staticmethod
    def forward(keys_CD: Tensor, source_ND: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        r_N = inverse_rms(source_ND, eps).squeeze(-1)
        return (keys_CD @ source_ND.T).mul_(r_N), r_N

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[:2], *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dlogits: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        keys_CD, source_ND, logits_CN, r_N = ctx.saved_tensors
        scaled_CN = dlogits * r_N
        along_N = (dlogits * logits_CN).sum(0).mul_(r_N.square()).div_(source_ND.shape[-1])
        dsource = (scaled_CN.T @ keys_CD).addcmul_(source_ND, along_N.unsqueeze(-1), value=-1)
        return scaled_CN @ source_ND, dsource, None


def weighted_sum(weights_S: Tensor, values: Values) -> Tensor:
    """`Σ_s weights[s] · values[s]`: weights (S, …), values S tensors (…, D) that may broadcast."""
    return _WeightedSum.apply(weights_S, *values)  # type: ignore[no-any-return, no-untyped-call]


def dots(x: Tensor, values: Values) -> Tensor:
    """`⟨x, values[s]⟩` over the last axis: (S, …)."""
    return _Dots.apply(x, *values)  # type: ignore[no-any-return, no-untyped-call]


def normed_product(keys_CD: Tensor, source_xD: Tensor, eps: float) -> Tensor:
    """`key_c · RMSNorm(source)` for every token and consumer c, shape (C, …), without a scale."""
    with without_autocast(source_xD):
        logits_CN, _ = _NormedProduct.apply(keys_CD, source_xD.flatten(0, -2), eps)  # type: ignore[no-untyped-call]
    return logits_CN.unflatten(1, source_xD.shape[:-1])  # type: ignore[no-any-return]
