"""RMSNorm and LayerNorm: formula, gradient, and the precision they compute in."""

import pytest
import torch
from torch import Tensor

from residuals.norms import LayerNorm, RMSNorm, inverse_rms, rms_norm
from residuals.parameters import initialise
from tests.residuals.kit import randn, relative


def reference(kind: type, x: Tensor, gain: Tensor, eps: float) -> Tensor:
    if kind is LayerNorm:
        x = x - x.mean(-1, keepdim=True)
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


@pytest.mark.parametrize("kind", [RMSNorm, LayerNorm])
@pytest.mark.parametrize("eps", [1e-24, 1e-6, 0.3])
@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 4, 7)])
def test_values_and_gradients(
    kind: type[RMSNorm] | type[LayerNorm], eps: float, shape: tuple[int, ...]
) -> None:
    norm = kind(shape[-1], eps).double()
    gain = randn(shape[-1], seed=4).requires_grad_()
    norm.gain = torch.nn.Parameter(gain.detach().clone())
    x = (2 * randn(*shape)).requires_grad_()
    actual, expected = norm(x), reference(kind, x, gain, eps)
    assert relative(actual, expected) < 1e-14
    direction = randn(*shape, seed=5)
    found = torch.autograd.grad((actual * direction).sum(), (x, norm.gain))
    wanted = torch.autograd.grad((expected * direction).sum(), (x, gain))
    for gradient, other in zip(found, wanted, strict=True):
        assert relative(gradient, other) < 1e-12


@pytest.mark.parametrize("eps", [1e-12, 0.3])
def test_gradcheck(eps: float) -> None:
    x, gain = randn(2, 3, 5).requires_grad_(), randn(5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, g: rms_norm(x, g, eps), (x, gain))


@pytest.mark.parametrize("kind", [RMSNorm, LayerNorm])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_inputs_are_normed_in_fp32(
    kind: type[RMSNorm] | type[LayerNorm], dtype: torch.dtype
) -> None:
    norm = kind(256, 1e-6)
    initialise(norm, 0)
    x = (300 * randn(5, 256)).to(dtype)  # squares overflow in fp16
    actual = norm(x)
    assert actual.dtype is dtype
    exact = reference(kind, x.double(), torch.ones(256).double(), 1e-6)
    # Correctly rounded but for ties: one rounding at the end, not one an operation.
    assert (actual.double() - exact.to(dtype).double()).abs().max() <= 2**-7
    assert (actual == exact.to(dtype)).double().mean() > 0.99


@pytest.mark.parametrize("kind", [RMSNorm, LayerNorm])
def test_width_of_the_input_is_kept(kind: type[RMSNorm] | type[LayerNorm]) -> None:
    norm = kind(8, 1e-24)
    initialise(norm, 0)
    x = randn(4, 8)
    assert norm(x).dtype is torch.float64  # though the gain is fp32
    assert relative(norm(x), reference(kind, x, torch.ones(8).double(), 0.0)) < 1e-14
    assert norm(x.float()).dtype is torch.float32


def test_zero_input_is_zero_with_a_finite_gradient() -> None:
    x = torch.zeros(2, 8, dtype=torch.float64).requires_grad_()
    y = rms_norm(x, torch.ones(8).double(), 1e-6)
    assert not y.any()
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.full_like(x, 1e3))


def test_inverse_rms_of_strided_input() -> None:
    x = randn(3, 4, 6).transpose(0, 1)
    assert relative(inverse_rms(x, 0.0), x.pow(2).mean(-1, keepdim=True).rsqrt()) < 1e-14
    y = randn(4, 3, 12)[..., ::2].requires_grad_()
    gain = randn(6, seed=2)
    (found,) = torch.autograd.grad(rms_norm(y, gain, 1e-12).sum(), y)
    (wanted,) = torch.autograd.grad(reference(RMSNorm, y, gain, 1e-12).sum(), y)
    assert relative(found, wanted) < 1e-12


def test_a_second_derivative_is_refused_and_not_wrong() -> None:
    x = randn(2, 5).requires_grad_()
    y = rms_norm(x, torch.ones(5).double(), 1e-6).pow(2).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|not have been used"):
        torch.autograd.grad(first.sum(), x)
