"""The two sublayers without their norms: attention's projections and the SwiGLU MLP."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from depthbench.config import Shape
from residuals import WEIGHT, Declared
from residuals.parameters import BASE_STD, truncated_normal


class InitGain(Protocol):
    """A design's factor on the base initial deviation of a matrix."""

    def __call__(self, role: str, fan_in: int, fan_out: int) -> float: ...


def base_normal(gain: float = 1.0) -> Any:
    """The backbone's initial rule: truncated normal, std 0.02 · gain, cut at 3 deviations."""
    return truncated_normal(BASE_STD * gain)


class Projection(Declared):
    """Linear map without bias whose output rows are one or several named matrices."""

    def __init__(self, fan_in: int, parts: dict[str, int], init_gain: InitGain) -> None:
        super().__init__()
        self.sizes = list(parts.values())
        drawn = {
            role: (rows, base_normal(init_gain(role, fan_in, rows))) for role, rows in parts.items()
        }
        self.declare_fused("weight", (fan_in,), WEIGHT, drawn)
        self.weight: nn.Parameter

    def forward(self, x_BTI: Tensor) -> Tensor:
        return F.linear(x_BTI, self.weight)

    def matrices(self) -> dict[str, Tensor]:
        """The named matrices, as views."""
        names = self.rules["weight"].parts
        return dict(zip(names, self.weight.split(self.sizes), strict=True))


class Attention(nn.Module):
    """Query, key and value from one product; the output projection. Heads mix in between."""

    def __init__(self, shape: Shape, init_gain: InitGain) -> None:
        super().__init__()
        d, kv = shape.d_model, shape.kv_heads * shape.head_dim
        self.heads = (shape.heads, shape.kv_heads, shape.kv_heads)
        self.head_dim = shape.head_dim
        self.qkv = Projection(d, {"q": d, "k": kv, "v": kv}, init_gain)
        self.out = Projection(d, {"o": d}, init_gain)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, T, H, d), k and v (B, T, G, d), not rotated."""
        split = self.qkv(x_BTD).unflatten(-1, (-1, self.head_dim)).split(self.heads, 2)
        return split[0], split[1], split[2]

    def output(self, o_BTHd: Tensor) -> Tensor:
        y_BTD: Tensor = self.out(o_BTHd.flatten(2))
        return y_BTD


class _SwiGLU(torch.autograd.Function):
    """Saves the sigmoid: recomputing its exponential costs more than any product here."""

    @staticmethod
    def forward(gate_up: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = gate_up.chunk(2, -1)
        sigmoid = torch.sigmoid(gate)
        return (gate * sigmoid).mul_(up), sigmoid

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, _: Tensor) -> Tensor:
        gate_up, sigmoid = ctx.saved_tensors
        gate, up = gate_up.chunk(2, -1)
        silu = gate * sigmoid
        dgate_up = torch.empty_like(gate_up)
        dgate, dup = dgate_up.chunk(2, -1)
        torch.mul(dy, silu, out=dup)
        # silu' = σ(1 + g(1 − σ)) = σ + silu − silu·σ
        slope = silu.addcmul_(silu, sigmoid, value=-1).add_(sigmoid)
        torch.mul(slope.mul_(up), dy, out=dgate)
        return dgate_up


def swiglu(gate_up: Tensor) -> Tensor:
    """`silu(gate) · up` of the two halves of the last axis (arXiv 2002.05202)."""
    return _SwiGLU.apply(gate_up)[0]  # type: ignore[no-any-return, no-untyped-call]


class MLP(nn.Module):
    """SwiGLU between a fused and a plain projection: `down(silu(gate x) · up x)`."""

    def __init__(self, shape: Shape, init_gain: InitGain) -> None:
        super().__init__()
        parts = {"gate": shape.ffn, "up": shape.ffn}
        self.gate_up = Projection(shape.d_model, parts, init_gain)
        self.down = Projection(shape.ffn, {"down": shape.d_model}, init_gain)

    def forward(self, x_BTD: Tensor) -> Tensor:
        y_BTD: Tensor = self.down(swiglu(self.gate_up(x_BTD)))
        return y_BTD
