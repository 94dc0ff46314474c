"""Cross-entropy of the head without the whole matrix of logits.

A chunk of tokens at a time: logits, their softmax, and at once the gradients, so that of a
(tokens × vocabulary) matrix only the chunk ever exists. On a CPU the chunk fits its cache;
elsewhere it is large enough for one product to fill the device.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from residuals.norms import at_least_fp32, without_autocast

CHUNK_BYTES = 4 * 2**20
DEVICE_CHUNK_BYTES = 256 * 2**20


def _chunks(x_ND: Tensor, weight_VD: Tensor) -> list[slice]:
    size = CHUNK_BYTES if x_ND.device.type == "cpu" else DEVICE_CHUNK_BYTES
    rows = max(1, size // (4 * weight_VD.shape[0]))
    return [slice(start, start + rows) for start in range(0, len(x_ND), rows)]


def _nll_and_probabilities(
    x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor
) -> tuple[Tensor, Tensor]:
    logits = at_least_fp32(x_ND @ weight_VD.T)
    at_target = logits.gather(1, targets_N.unsqueeze(1))
    top = logits.amax(1, keepdim=True)
    p_NV = torch.softmax(logits, 1, out=logits)
    # log Z from the largest probability, which cannot underflow.
    log_z = top - p_NV.amax(1, keepdim=True).log_()
    return (log_z - at_target).squeeze(1), p_NV


class _SummedNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        weight = weight_VD.to(x_ND.dtype)
        dx_ND = torch.empty_like(x_ND)
        # Kept transposed: a product with few rows and many columns is faster than the reverse.
        dweight_DV = weight_VD.new_zeros(weight_VD.T.shape)
        total = x_ND.new_zeros((), dtype=torch.float64)
        for chunk in _chunks(x_ND, weight):
            x, target = x_ND[chunk], targets_N[chunk]
            nll, p = _nll_and_probabilities(x, weight, target)
            total += nll.sum(dtype=torch.float64)
            dlogits = p.scatter_add_(1, target.unsqueeze(1), p.new_full((len(x), 1), -1.0))
            dlogits = dlogits.to(x.dtype)
            torch.mm(dlogits, weight, out=dx_ND[chunk])
            dweight_DV += x.T @ dlogits
        return total, dx_ND, dweight_DV.T.contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dtotal: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, None]:
        dx_ND, dweight_VD = ctx.saved_tensors
        return dx_ND * dtotal.to(dx_ND.dtype), dweight_VD * dtotal.to(dweight_VD.dtype), None


def _as_product_operand(x_xD: Tensor) -> Tensor:
    """(N, D) in the dtype that autocast, if it is on, would multiply in."""
    device, flat = x_xD.device.type, x_xD.flatten(0, -2)
    return flat.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else flat


def summed_nll(x_xD: Tensor, weight_VD: Tensor, targets_x: Tensor) -> Tensor:
    """Sum over tokens of `-log softmax(x·Wᵀ)[target]` in nats, a fp64 scalar with gradients.

    The gradients are computed with the loss, so it may be differentiated once.
    """
    x_ND = _as_product_operand(x_xD)
    with without_autocast(x_ND):
        total, _, _ = _SummedNLL.apply(x_ND, weight_VD, targets_x.flatten())  # type: ignore[no-untyped-call]
    return total  # type: ignore[no-any-return]


@torch.no_grad()
def token_nll(x_xD: Tensor, weight_VD: Tensor, targets_x: Tensor) -> Tensor:
    """`-log softmax(x·Wᵀ)[target]` in nats for every token, in fp32 or wider, without gradients."""
    x_ND, targets_N = _as_product_operand(x_xD), targets_x.flatten()
    weight = weight_VD.to(x_ND.dtype)
    with without_autocast(x_ND):
        parts = [
            _nll_and_probabilities(x_ND[chunk], weight, targets_N[chunk])[0]
            for chunk in _chunks(x_ND, weight)
        ]
    return torch.cat(parts).view_as(targets_x)
