"""Projections and the SwiGLU MLP against their formulas."""

import torch

from depthbench.config import Shape
from depthbench.model.layers import MLP, Attention, Projection
from residuals import initialise


def unit(role: str, fan_in: int, fan_out: int) -> float:
    return 1.0


def randn(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


SHAPE = Shape(layers=1, d_model=8, ffn=6, heads=4, kv_heads=2)


def test_mlp_is_swiglu() -> None:
    mlp = MLP(SHAPE, unit)
    initialise(mlp, 0)
    mlp = mlp.double()
    with torch.no_grad():
        for parameter in mlp.parameters():
            parameter *= 50
    gate, up = mlp.gate_up.matrices()["gate"], mlp.gate_up.matrices()["up"]
    x = randn(2, 3, 8).requires_grad_()
    z = x @ gate.T
    expected = (z / (1 + torch.exp(-z)) * (x @ up.T)) @ mlp.down.weight.T
    actual = mlp(x)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    inputs = (x, *mlp.parameters())
    found, wanted = (torch.autograd.grad(y.pow(2).sum(), inputs) for y in (actual, expected))
    for gradient, reference in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-11, atol=1e-12)


def test_projections_of_attention() -> None:
    attention = Attention(SHAPE, unit)
    initialise(attention, 0)
    attention = attention.double()
    x = randn(2, 3, 8)
    for part, heads, role in zip(attention.project(x), (4, 2, 2), "qkv", strict=True):
        assert part.shape == (2, 3, heads, 2)
        matrix = attention.qkv.matrices()[role]
        torch.testing.assert_close(part.flatten(2), x @ matrix.T, rtol=1e-12, atol=1e-14)
    o = randn(2, 3, 4, 2)
    expected = o.reshape(2, 3, 8) @ attention.out.weight.T
    torch.testing.assert_close(attention.output(o), expected, rtol=1e-12, atol=1e-14)


def test_gain_of_a_design_scales_the_named_matrix_alone() -> None:
    seen = []

    def gain(role: str, fan_in: int, fan_out: int) -> float:
        seen.append((role, fan_in, fan_out))
        return 0.5 if role == "v" else 1.0

    parts = {"q": 8, "k": 4, "v": 4}
    plain, scaled = Projection(8, parts, unit), Projection(8, parts, gain)
    for projection in (plain, scaled):
        initialise(projection, 0)
    assert seen == [("q", 8, 8), ("k", 8, 4), ("v", 8, 4)]
    for role, matrix in scaled.matrices().items():
        factor = 0.5 if role == "v" else 1.0
        torch.testing.assert_close(matrix, factor * plain.matrices()[role], rtol=1e-6, atol=0)
