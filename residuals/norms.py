"""RMSNorm and LayerNorm with a gain, in fp32 or in the input's type where that is wider.

RMSNorm has its own backward: autograd's trace of the elementary operations reads and writes the
activations about three times as often.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from residuals.parameters import NORM_GAIN, Declared, constant


def at_least_fp32(x: Tensor) -> Tensor:
    """`x` in fp32, or unchanged where it already is fp32 or wider."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """A context in which products keep their operands' dtype: routing coefficients stay fp32."""
    if x.device.type == "meta":
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)


def inverse_rms(x_xD: Tensor, eps: float) -> Tensor:
    """`1/sqrt(mean(x²) + eps)` over the last axis, shape (..., 1)."""
    norm_x1 = torch.linalg.vector_norm(x_xD, dim=-1, keepdim=True)
    return norm_x1.square_().div_(x_xD.shape[-1]).add_(eps).rsqrt_()  # type: ignore[no-any-return]


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, gain: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        r = inverse_rms(x, eps)
        return (x * r).mul_(gain), r

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, gain, _ = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, gain, output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        x, gain, r = ctx.saved_tensors
        width = x.shape[-1]
        product = dy * x
        along = (product @ gain).unsqueeze(-1).mul_(r.pow(3)).div_(width)
        dgain = r.reshape(-1) @ product.reshape(-1, width)
        return (dy * gain).mul_(r).addcmul_(x, along, value=-1), dgain, None


def rms_norm(x_xD: Tensor, gain_D: Tensor, eps: float) -> Tensor:
    """`x / sqrt(mean(x²) + eps) · gain` over the last axis, in `x`'s dtype (1910.07467)."""
    wide = at_least_fp32(x_xD)
    y, _ = _RMSNorm.apply(wide, gain_D.to(wide.dtype), eps)  # type: ignore[no-untyped-call]
    return y.to(x_xD.dtype)  # type: ignore[no-any-return]


class RMSNorm(Declared):
    """RMSNorm over the last axis with a gain that starts at one."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.declare("gain", (width,), NORM_GAIN, constant(1.0))
        self.gain: nn.Parameter

    def forward(self, x_xD: Tensor) -> Tensor:
        return rms_norm(x_xD, self.gain, self.eps)


class LayerNorm(Declared):
    """Mean-centred LayerNorm with a gain that starts at one, without bias."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.declare("gain", (width,), NORM_GAIN, constant(1.0))
        self.gain: nn.Parameter

    def forward(self, x_xD: Tensor) -> Tensor:
        wide = at_least_fp32(x_xD)
        gain = self.gain.to(wide.dtype)
        normed = nn.functional.layer_norm(wide, (wide.shape[-1],), gain, None, self.eps)
        return normed.to(x_xD.dtype)
