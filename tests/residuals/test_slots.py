"""Sums and products over lists: values, gradients, and that nothing but the list is kept."""

import pytest
import torch
from torch import Tensor, nn

from residuals.products import normed_product
from residuals.slots import dots, shared, weighted_sum
from residuals.together import CHUNK, softmax_and_total, weighted_sums
from tests.residuals.kit import randn, relative, saved_bytes


def values_of(num: int, *shape: int) -> tuple[Tensor, ...]:
    return tuple(randn(*shape, seed=20 + s).requires_grad_() for s in range(num))


@pytest.mark.parametrize("num", [1, 4])
@pytest.mark.parametrize("grouped", [False, True])
def test_weighted_sum(num: int, grouped: bool) -> None:
    """`grouped`: each value serves three heads by broadcasting."""
    values = values_of(num, 2, 1 if grouped else 3, 5)
    weights = randn(num, 2, 3).requires_grad_()
    actual = weighted_sum(weights, values)
    expected = (weights[..., None] * torch.stack([v.expand(2, 3, 5) for v in values])).sum(0)
    assert relative(actual, expected) < 1e-14
    direction = randn(2, 3, 5, seed=9)
    found, wanted = (
        torch.autograd.grad((x * direction).sum(), (weights, *values)) for x in (actual, expected)
    )
    for gradient, reference in zip(found, wanted, strict=True):
        assert relative(gradient, reference) < 1e-13
    assert torch.autograd.gradcheck(lambda w, *v: weighted_sum(w, v), (weights, *values))


def test_several_weighted_sums_are_each_of_them() -> None:
    values = values_of(3, 2, 4, 5)
    weights = randn(6, 3, 2, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda w, *v: weighted_sums(w, v), (weights, *values))
    leaves, weights = values_of(3, CHUNK + 9, 2), randn(4, 3, CHUNK + 9).requires_grad_()
    values = tuple(shared(x.tanh()) if s else x.tanh() for s, x in enumerate(leaves))
    actual = weighted_sums(weights, values)
    expected = (weights[..., None] * torch.stack([x.tanh() for x in leaves])).sum(1)
    assert relative(actual, expected) < 1e-14
    direction = randn(*actual.shape, seed=9)
    losses = [(x * direction).sum() + x[0].pow(2).sum() for x in (actual, expected)]
    losses[0] = losses[0] + weighted_sum(weights[0], values).sum()
    losses[1] = losses[1] + expected[0].sum()
    found, wanted = (torch.autograd.grad(loss, (*leaves, weights)) for loss in losses)
    assert_close(found, wanted)


@pytest.mark.parametrize("grouped", [False, True])
def test_dots(grouped: bool) -> None:
    values = values_of(3, 2, 1 if grouped else 3, 5)
    x = randn(2, 3, 5).requires_grad_()
    actual = dots(x, values)
    expected = torch.stack([(x * v).sum(-1) for v in values])
    assert relative(actual, expected) < 1e-14
    direction = randn(3, 2, 3, seed=9)
    found, wanted = (
        torch.autograd.grad((y * direction).sum(), (x, *values)) for y in (actual, expected)
    )
    for gradient, reference in zip(found, wanted, strict=True):
        assert relative(gradient, reference) < 1e-13
    assert torch.autograd.gradcheck(lambda x, *v: dots(x, v), (x, *values))


def test_softmax_and_total() -> None:
    logits = (9 * randn(2, 5, 3)).requires_grad_()
    weights, total = softmax_and_total(logits)
    assert relative(weights, logits.softmax(1)) < 1e-13
    assert relative(total.squeeze(1), logits.logsumexp(1)) < 1e-14
    assert torch.autograd.gradcheck(softmax_and_total, (logits,))


@pytest.mark.parametrize("eps", [1e-24, 0.1])
def test_normed_product(eps: float) -> None:
    keys, source = randn(4, 6).requires_grad_(), (3 * randn(2, 3, 6, seed=1)).requires_grad_()
    actual = normed_product(keys, source, eps)
    normed = source / (source.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    expected = torch.stack([(normed * key).sum(-1) for key in keys])
    assert actual.shape == (4, 2, 3)
    assert relative(actual, expected) < 1e-13
    direction = randn(4, 2, 3, seed=9)
    found, wanted = (
        torch.autograd.grad((y * direction).sum(), (keys, source)) for y in (actual, expected)
    )
    for gradient, reference in zip(found, wanted, strict=True):
        assert relative(gradient, reference) < 1e-12
    assert torch.autograd.gradcheck(lambda k, s: normed_product(k, s, eps), (keys, source))


def test_normed_product_keeps_fp32_under_autocast() -> None:
    keys, source = randn(4, 6, dtype=torch.float32), randn(2, 3, 6, seed=1, dtype=torch.float32)
    plain = normed_product(keys, source, 1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        product = normed_product(keys, source, 1e-6)
    assert product.dtype is torch.float32
    assert torch.equal(product, plain)


def test_only_the_list_and_the_weights_are_kept() -> None:
    tokens, d, num = 32, 64, 5
    values = values_of(num, tokens, d)
    weights = randn(num, tokens).requires_grad_()
    one = 8 * tokens * d
    with saved_bytes(nn.Identity()) as total:
        weighted_sum(weights, values)
    assert total[0] == num * one + 8 * num * tokens
    with saved_bytes(nn.Identity()) as total:
        for _ in range(10):  # a source is kept once however many consumers it has
            weighted_sum(weights, values)
            dots(values[0], values)
    assert total[0] == num * one + 8 * num * tokens


def readers(values: tuple[Tensor, ...], weights: Tensor) -> Tensor:
    """Sums and products that read each value several times, one of them by plain operations."""
    first = weighted_sum(weights, values)
    second = weighted_sum(weights.flip(0) * first.mean(-1), values)
    third = dots(second, values).sum(0)
    return (first * second).sum() + third.sum() + 2 * values[1].pow(2).sum()


def naive_readers(values: tuple[Tensor, ...], weights: Tensor) -> Tensor:
    stack = torch.stack(values)
    first = (weights[..., None] * stack).sum(0)
    second = ((weights.flip(0) * first.mean(-1))[..., None] * stack).sum(0)
    third = (second * stack).sum(-1)
    return (first * second).sum() + third.sum() + 2 * values[1].pow(2).sum()


def assert_close(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for gradient, reference in zip(found, wanted, strict=True):
        assert relative(gradient, reference) < 1e-12


def test_gradients_collected_in_place_are_the_traced_ones() -> None:
    """In one pass, in a second one, after a pass that stopped early, and for some inputs alone."""
    leaves, weights = values_of(3, 2, 3, 5), randn(3, 2, 3).requires_grad_()
    values = tuple(shared(x.tanh()) for x in leaves)
    loss, other = readers(values, weights), weighted_sum(weights, values).sum()
    traced = tuple(x.tanh() for x in leaves)
    expected = torch.autograd.grad(naive_readers(traced, weights), (*leaves, weights))
    (only,) = torch.autograd.grad(loss, weights, retain_graph=True)  # values stay unread
    assert relative(only, expected[-1]) < 1e-12
    for _ in range(2):
        assert_close(torch.autograd.grad(loss, (*leaves, weights), retain_graph=True), expected)
    some = torch.autograd.grad(loss, leaves[2:], retain_graph=True)
    assert_close(some, expected[2:3])
    wanted = tuple(w * (1 - x.tanh() ** 2) for x, w in zip(leaves, weights[..., None], strict=True))
    assert_close(torch.autograd.grad(other, leaves, retain_graph=True), wanted)
    assert_close(torch.autograd.grad(loss, (*leaves, weights)), expected)


def test_what_an_interrupted_pass_collected_is_never_used() -> None:
    leaf, weights = randn(2, 5).requires_grad_(), randn(1, 2).requires_grad_()
    value = shared(leaf.tanh())
    torch.autograd.grad(weighted_sum(weights, (value,)).sum(), weights, retain_graph=True)
    (found,) = torch.autograd.grad((3 * value).sum(), leaf)  # no reader takes part
    assert relative(found, 3 * (1 - leaf.tanh() ** 2)) < 1e-14


def test_backward_accumulates_over_losses() -> None:
    leaves, weights = values_of(3, 2, 3, 5), randn(3, 2, 3).requires_grad_()
    values = tuple(shared(x.tanh()) for x in leaves)
    for _ in range(2):
        readers(values, weights).backward(retain_graph=True)
    traced = naive_readers(tuple(x.tanh() for x in leaves), weights)
    wanted = torch.autograd.grad(2 * traced, leaves)
    assert_close(tuple(x.grad for x in leaves if x.grad is not None), wanted)


def test_shared_values_that_broadcast_or_need_no_gradient() -> None:
    leaf, constant = randn(2, 1, 5).requires_grad_(), randn(2, 1, 5, seed=1)
    weights = randn(2, 2, 3).requires_grad_()
    actual = weighted_sum(weights, (shared(leaf.tanh()), shared(constant)))
    stack = torch.stack((leaf.tanh(), constant)).expand(2, 2, 3, 5)
    expected = (weights[..., None] * stack).sum(0)
    direction = randn(2, 3, 5, seed=2)
    assert_close(
        torch.autograd.grad((actual * direction).sum(), (leaf, weights)),
        torch.autograd.grad((expected * direction).sum(), (leaf, weights)),
    )
    with torch.no_grad():
        assert torch.equal(weighted_sum(weights, (shared(leaf.tanh()), constant)), actual)
