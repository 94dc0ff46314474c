"""Products of keys with the RMS-normalised state, without the normalised state in memory."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from residuals.norms import inverse_rms, without_autocast


class _NormedProduct(torch.autograd.Function):
    @staticmethod
    def forward(keys_CD: Tensor, source_ND: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        r_N = inverse_rms(source_ND, eps).squeeze(-1)
        return (keys_CD @ source_ND.T).mul_(r_N), r_N, source_ND.view_as(source_ND)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:2], *output[:2])

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dlogits: Tensor | None, _: None, dlater_ND: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None]:
        if dlogits is None:
            return None, dlater_ND, None
        keys_CD, source_ND, logits_CN, r_N = ctx.saved_tensors
        scaled_CN = dlogits * r_N
        along_N = (dlogits * logits_CN).sum(0).mul_(r_N.square()).div_(source_ND.shape[-1])
        if dlater_ND is None:
            dsource = scaled_CN.T @ keys_CD
        else:
            dsource = torch.addmm(dlater_ND, scaled_CN.T, keys_CD)
        dsource.addcmul_(source_ND, along_N.unsqueeze(-1), value=-1)
        return scaled_CN @ source_ND, dsource, None


def normed_product_through(keys_CD: Tensor, source_xD: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`key_c · RMSNorm(source)` for every token and key c, (C, …), and the source again.

    What reads the source later should read that one: its gradient is then the start of the sum
    here, and not another tensor to be added.
    """
    with without_autocast(source_xD):
        inputs = (keys_CD, source_xD.flatten(0, -2), eps)
        logits_CN, _, later_ND = _NormedProduct.apply(*inputs)  # type: ignore[no-untyped-call]
    shape = source_xD.shape
    return logits_CN.unflatten(1, shape[:-1]), later_ND.view(shape)


def normed_product(keys_CD: Tensor, source_xD: Tensor, eps: float) -> Tensor:
    """`key_c · RMSNorm(source)` for every token and key c, shape (C, …), without a scale."""
    return normed_product_through(keys_CD, source_xD, eps)[0]
