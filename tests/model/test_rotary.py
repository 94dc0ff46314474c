"""Rotary position against complex multiplication and against transformers' formula."""

import pytest
import torch
from torch import Tensor

from depthbench.model.rotary import Rotary

THETA = 10_000.0


def randn(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("d", [2, 8, 38])
def test_rotation_is_complex_multiplication(d: int) -> None:
    positions = torch.tensor([0, 1, 5, 4095])
    x = randn(2, 4, 3, d)
    half = d // 2
    frequency = THETA ** (-2 * torch.arange(half, dtype=torch.float64) / d)
    angle = positions[:, None, None] * frequency
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.exp(1j * angle)
    expected = torch.cat((turned.real, turned.imag), -1)
    actual = Rotary.at(positions, d, THETA, torch.float64)(x)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(actual[:, 0], x[:, 0])  # position 0
    torch.testing.assert_close(actual.norm(dim=-1), x.norm(dim=-1))


def test_rotation_is_transformers() -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    d, T = 16, 40
    config = LlamaConfig(
        hidden_size=2 * d,
        num_attention_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
    )
    q, k = randn(2, T, 2, d).float(), randn(2, T, 2, d).float().flip(1)
    positions = torch.arange(T)
    cos, sin = LlamaRotaryEmbedding(config)(q, positions[None])
    theirs = apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
    rotary = Rotary.at(positions, d, THETA, torch.float32)
    for ours, other in zip((q, k), theirs, strict=True):
        torch.testing.assert_close(rotary(ours), other.transpose(1, 2), rtol=1e-5, atol=1e-5)


def test_angles_of_far_positions_are_not_rounded() -> None:
    """In fp32 the angle itself would be off by up to 0.004 at position 100,000."""
    position = torch.tensor([100_003])
    rotary = Rotary.at(position, 4, THETA, torch.float32)
    exact = torch.tensor([100_003.0, 1000.03], dtype=torch.float64).cos()
    torch.testing.assert_close(rotary.cos.flatten().double(), exact, rtol=0, atol=1e-7)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_into_heads_and_its_gradient(scale: float) -> None:
    rotary = Rotary.at(torch.arange(5), 6, THETA, torch.float64)
    x = randn(2, 5, 3, 6).requires_grad_()
    expected = scale * rotary(x).transpose(1, 2)
    heads = rotary.into_heads(x.detach(), scale)
    assert heads.is_contiguous()
    torch.testing.assert_close(heads, expected, rtol=1e-14, atol=1e-14)
    direction = randn(2, 3, 5, 6)
    (wanted,) = torch.autograd.grad((expected * direction).sum(), x)
    torch.testing.assert_close(
        rotary.out_of_heads(direction, scale), wanted, rtol=1e-13, atol=1e-13
    )
