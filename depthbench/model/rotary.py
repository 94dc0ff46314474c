"""Rotary position embedding (RoFormer, arXiv 2104.09864), in the half-split layout of Llama."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rotary:
    """cos and sin of the rotation angles, each (T, 1, head_dim / 2)."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(cls, positions_T: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> "Rotary":
        """Angles `position · theta^(-2i/head_dim)`, computed in fp64: no dtype loses them."""
        even = torch.arange(0, head_dim, 2, device=positions_T.device, dtype=torch.float64)
        angles = positions_T.double()[:, None, None] * theta ** (-even / head_dim)
        return cls(angles.cos().to(dtype), angles.sin().to(dtype))

    def __call__(self, x_BTHd: Tensor) -> Tensor:
        """Rotates the pairs (i, i + d/2) of every head."""
        low, high = x_BTHd.chunk(2, -1)
        cos, sin = self.cos.to(x_BTHd.dtype), self.sin.to(x_BTHd.dtype)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

    def into_heads(self, x_BTHd: Tensor, scale: float = 1.0) -> Tensor:
        """The same times `scale`, without autograd, in (B, H, T, d) memory order."""
        B, T, H, d = x_BTHd.shape
        rotated_BHTd = x_BTHd.new_empty(B, H, T, d)
        self._write(x_BTHd.transpose(1, 2), rotated_BHTd, self.cos * scale, self.sin * scale)
        return rotated_BHTd

    def out_of_heads(self, grad_BHTd: Tensor, scale: float = 1.0) -> Tensor:
        """Gradient of `into_heads`: (B, T, H, d)."""
        B, H, T, d = grad_BHTd.shape
        grad_BTHd = grad_BHTd.new_empty(B, T, H, d)
        self._write(grad_BHTd, grad_BTHd.transpose(1, 2), self.cos * scale, self.sin * -scale)
        return grad_BTHd

    def _write(self, x_BHTd: Tensor, out_BHTd: Tensor, cos_T1h: Tensor, sin_T1h: Tensor) -> None:
        cos, sin = cos_T1h.squeeze(1), sin_T1h.squeeze(1)
        (low, high), (out_low, out_high) = x_BHTd.chunk(2, -1), out_BHTd.chunk(2, -1)
        torch.mul(low, cos, out=out_low).addcmul_(high, sin, value=-1)
        torch.mul(high, cos, out=out_high).addcmul_(low, sin)
