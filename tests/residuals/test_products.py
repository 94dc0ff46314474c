"""The product and its pass-through against the formula under autograd."""

import pytest
import torch

from residuals.products import normed_product, normed_product_through
from tests.residuals.kit import randn, relative

EPS = 0.1


def test_values_and_both_gradients() -> None:
    keys, source = randn(3, 6).requires_grad_(), randn(2, 5, 6, seed=1).requires_grad_()
    direction, later_direction = randn(3, 2, 5, seed=2), randn(2, 5, 6, seed=3)
    logits, later = normed_product_through(keys, source, EPS)
    normed = source / (source.square().mean(-1, keepdim=True) + EPS).sqrt()
    expected = torch.einsum("cd,btd->cbt", keys, normed)
    assert relative(logits, expected) < 1e-13
    assert torch.equal(later, source)
    pairs = ((logits, later), (expected, source))
    found, wanted = (
        torch.autograd.grad((x * direction).sum() + (y.sin() * later_direction).sum(), inputs)
        for (x, y), inputs in zip(pairs, [(keys, source)] * 2, strict=True)
    )
    assert max(relative(a, b) for a, b in zip(found, wanted, strict=True)) < 1e-13


@pytest.mark.parametrize("output", [0, 1])
def test_gradcheck_of_each_output_alone(output: int) -> None:
    keys, source = randn(3, 6).requires_grad_(), randn(2, 6, seed=1).requires_grad_()
    both = (keys, source) if output == 0 else (source,)

    def function(*inputs: torch.Tensor) -> torch.Tensor:
        return normed_product_through(inputs[0] if output == 0 else keys, inputs[-1], EPS)[output]

    assert torch.autograd.gradcheck(function, both)


def test_same_as_the_plain_product_under_autocast() -> None:
    keys, source = randn(3, 6, dtype=torch.float32), randn(2, 5, 6, seed=1, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        logits, later = normed_product_through(keys, source, EPS)
    assert torch.equal(logits, normed_product(keys, source, EPS))
    assert torch.equal(later, source)
