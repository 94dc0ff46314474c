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
        self._write(x_BTHd.transpose(1, 2), _swapped(x_BTHd).transpose(1, 2), rotated_BHTd, scale)
        return rotated_BHTd

    def out_of_heads(self, grad_BHTd: Tensor, scale: float = 1.0) -> Tensor:
        """Gradient of `into_heads`: (B, T, H, d)."""
        B, H, T, d = grad_BHTd.shape
        grad_BTHd = grad_BHTd.new_empty(B, T, H, d)
        out_BHTd = grad_BTHd.transpose(1, 2)
        self._write(grad_BHTd, _swapped(grad_BHTd), out_BHTd, scale, back=True)
        return grad_BTHd

    def _write(
        self, x_BHTd: Tensor, swapped: Tensor, out_BHTd: Tensor, scale: float, back: bool = False
    ) -> None:
        cos, sin = self.cos.squeeze(1) * scale, self.sin.squeeze(1) * (-scale if back else scale)
        torch.mul(x_BHTd, torch.cat((cos, cos), -1), out=out_BHTd)
        out_BHTd.addcmul_(swapped, torch.cat((-sin, sin), -1))


def _swapped(x_xd: Tensor) -> Tensor:
    """The halves of the last axis in reverse order."""
    return torch.cat(x_xd.chunk(2, -1)[::-1], -1)
