"""The two sublayers without their norms: attention's projections and the SwiGLU MLP."""

from typing import Any, Protocol

from torch import Tensor, nn
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

    def each(self, x_BTI: Tensor) -> list[Tensor]:
        """The product with each named matrix, contiguous.

        On a CPU that is faster than one product: what follows reads whole rows, not strided parts.
        """
        return [F.linear(x_BTI, part) for part in self.weight.split(self.sizes)]

    def matrices(self) -> dict[str, Tensor]:
        """The named matrices, as views."""
        names = self.rules["weight"].parts
        return dict(zip(names, self.weight.split(self.sizes), strict=True))


class Attention(nn.Module):
    """Projections to query, key and value, and of the output. Heads mix in between."""

    def __init__(self, shape: Shape, init_gain: InitGain) -> None:
        super().__init__()
        d, kv = shape.d_model, shape.kv_heads * shape.head_dim
        self.head_dim = shape.head_dim
        self.qkv = Projection(d, {"q": d, "k": kv, "v": kv}, init_gain)
        self.out = Projection(d, {"o": d}, init_gain)

    def project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, T, H, d), k and v (B, T, G, d), not rotated."""
        q, k, v = (x.unflatten(-1, (-1, self.head_dim)) for x in self.qkv.each(x_BTD))
        return q, k, v

    def output(self, o_BTHd: Tensor) -> Tensor:
        y_BTD: Tensor = self.out(o_BTHd.flatten(2))
        return y_BTD


class MLP(nn.Module):
    """SwiGLU (arXiv 2002.05202): `down(silu(gate x) · up x)`."""

    def __init__(self, shape: Shape, init_gain: InitGain) -> None:
        super().__init__()
        parts = {"gate": shape.ffn, "up": shape.ffn}
        self.gate_up = Projection(shape.d_model, parts, init_gain)
        self.down = Projection(shape.ffn, {"down": shape.d_model}, init_gain)

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate, up = self.gate_up.each(x_BTD)
        y_BTD: Tensor = self.down(F.silu(gate) * up)
        return y_BTD
