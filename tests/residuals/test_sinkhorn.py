"""Sinkhorn against a naive version in log space, and the errors that 20 iterations leave."""

from itertools import product

import pytest
import torch
from torch import Tensor

from residuals.sinkhorn import sinkhorn
from tests.residuals.kit import randn, relative
from tests.residuals.naive import log_sinkhorn


def naive(logits: Tensor, iterations: int = 20) -> Tensor:
    """The reference with the matrix axes first."""
    return log_sinkhorn(logits.movedim((0, 1), (-2, -1)), iterations).movedim((-2, -1), (0, 1))


@pytest.mark.parametrize("iterations", [1, 2, 3, 20])
@pytest.mark.parametrize(("std", "m"), [(0.3, 4), (3.0, 4), (30.0, 4), (1.0, 2), (1.0, 1)])
def test_values_and_gradients(iterations: int, std: float, m: int) -> None:
    logits = (std * randn(m, m, 3, 5)).requires_grad_()
    direction = randn(m, m, 3, 5, seed=1)
    actual, expected = sinkhorn(logits, iterations), naive(logits, iterations)
    assert relative(actual, expected) < 1e-12
    found, wanted = (
        torch.autograd.grad((x * direction).sum(), logits)[0] for x in (actual, expected)
    )
    assert (found - wanted).abs().max() < 1e-11 * max(1.0, wanted.abs().max().item())


@pytest.mark.parametrize("std", [0.5, 3.0])
def test_gradcheck(std: float) -> None:
    logits = (std * randn(3, 3, 2)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: sinkhorn(x, 4), logits, check_undefined_grad=False)
    assert torch.autograd.gradcheck(sinkhorn, logits, check_undefined_grad=False)


def test_columns_come_first_and_rows_last() -> None:
    once = sinkhorn(randn(4, 4, 10), 1)
    rows, columns = once.sum(1), once.sum(0)
    torch.testing.assert_close(rows, torch.ones_like(rows), rtol=0, atol=1e-14)
    assert (columns - 1).abs().max() > 1e-2
    # Columns, then rows, of a matrix with one heavy row: by hand.
    P = torch.tensor([[2.0, 2.0], [1.0, 3.0]], dtype=torch.float64)
    by_columns = P / torch.tensor([3.0, 5.0])
    expected = by_columns / by_columns.sum(1, keepdim=True)
    assert relative(sinkhorn(P.log()[..., None], 1)[..., 0], expected) < 1e-14


def test_rows_are_exact_in_fp32() -> None:
    for std in (0.5, 3.0, 20.0):
        rows = sinkhorn(std * randn(4, 4, 500, dtype=torch.float32)).sum(1)
        assert (rows - 1).abs().max() < 1e-6


def column_error(logits: Tensor) -> float:
    return (sinkhorn(logits).sum(0) - 1).abs().max().item()


def test_column_error_after_twenty_iterations() -> None:
    generator = torch.Generator().manual_seed(0)
    uniform = 4 * torch.rand(4, 4, 20_000, generator=generator, dtype=torch.float64) - 2
    assert column_error(uniform) < 1e-3
    corners = torch.tensor(list(product((-2.0, 2.0), repeat=16)), dtype=torch.float64)
    assert column_error(corners.T.reshape(4, 4, -1)) < 6.5e-3
    near_identity = 8 * (torch.eye(4, dtype=torch.float64) - 1)[..., None]
    assert column_error(near_identity) < 1e-12
    assert column_error(near_identity + randn(4, 4, 2_000)) < 2.4e-2
    assert column_error(3 * randn(4, 4, 1_000)) < 5e-2


@pytest.mark.parametrize("std", [3.0, 10.0, 40.0])
def test_gradients_in_fp32_are_finite_through_twenty_iterations(std: float) -> None:
    logits = (std * randn(4, 4, 2_000, dtype=torch.float32)).requires_grad_()
    sinkhorn(logits).square().sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().max() > 1e-4


def test_underflow_in_a_whole_row_or_column_is_harmless() -> None:
    """exp(−200) is zero in fp32; the log space of the first iteration must absorb it."""
    for shift in (
        torch.tensor([[-200.0], [0.0], [0.0], [300.0]]),
        torch.tensor([[-200.0, 0, 0, 300]]),
    ):
        logits = randn(4, 4, dtype=torch.float32)
        shifted = (logits + shift)[..., None].requires_grad_()
        result = sinkhorn(shifted)
        torch.testing.assert_close(result, sinkhorn(logits[..., None]), rtol=1e-3, atol=1e-4)
        result.square().sum().backward()
        assert shifted.grad is not None
        assert shifted.grad.isfinite().all()


def test_one_token_does_not_see_another() -> None:
    logits = randn(4, 4, 6)
    alone = sinkhorn(logits[..., 2:3])
    hard = 20 * randn(4, 4, 6, seed=3)
    hard[..., 2] = logits[..., 2]
    for together in (sinkhorn(logits), sinkhorn(hard)):
        torch.testing.assert_close(together[..., 2:3], alone, rtol=1e-13, atol=1e-14)


def test_compiled_backward_of_twenty_iterations_is_finite_and_equal() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(sinkhorn, fullgraph=True, dynamic=False)
    logits = (3 * randn(4, 4, 64, dtype=torch.float32)).requires_grad_()
    direction = randn(4, 4, 64, seed=1, dtype=torch.float32)
    actual, expected = compiled(logits), sinkhorn(logits)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    found, wanted = (
        torch.autograd.grad((x * direction).sum(), logits)[0] for x in (actual, expected)
    )
    assert found.isfinite().all()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
