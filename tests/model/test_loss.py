"""Cross-entropy in chunks against the whole matrix of logits."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from depthbench.model import loss
from depthbench.model.loss import summed_nll, token_nll

N, D, V = 23, 6, 11


def inputs(scale: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = scale * torch.randn(N, D, generator=generator, dtype=torch.float64)
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64)
    targets = torch.randint(V, (N,), generator=generator)
    return x.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), targets


@pytest.fixture(params=[1, 7, 8, N - 1, N, N + 1, None])
def _rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens in a chunk: one, some that do not divide N, N, more; None leaves the default."""
    if request.param is not None:
        monkeypatch.setattr(loss, "CHUNK_BYTES", 4 * V * request.param)


@pytest.mark.usefixtures("_rows")
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_sum_and_gradients(scale: float) -> None:
    x, weight, targets = inputs(scale)
    actual = summed_nll(x, weight, targets)
    expected = F.cross_entropy(x @ weight.T, targets, reduction="sum")
    assert actual.item() == pytest.approx(expected.item(), rel=1e-13)
    found, wanted = (torch.autograd.grad(3 * y, (x, weight)) for y in (actual, expected))
    for gradient, reference in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-11, atol=1e-12)


@pytest.mark.usefixtures("_rows")
def test_token_nll_keeps_the_shape_of_the_targets() -> None:
    x, weight, targets = inputs(10.0)
    batched = token_nll(x[:22].view(2, 11, D), weight, targets[:22].view(2, 11))
    expected = F.cross_entropy(x[:22] @ weight.T, targets[:22], reduction="none").view(2, 11)
    torch.testing.assert_close(batched, expected, rtol=1e-12, atol=1e-13)
    assert not batched.requires_grad
    assert summed_nll(x[:22].view(2, 11, D), weight, targets[:22].view(2, 11)).item() == (
        pytest.approx(batched.sum().item(), rel=1e-13)
    )


def test_gradcheck() -> None:
    x, weight, targets = inputs()
    assert torch.autograd.gradcheck(lambda x, w: summed_nll(x, w, targets), (x, weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits(dtype: torch.dtype) -> None:
    """exp(±8000) neither overflows nor makes an infinite loss."""
    x = torch.tensor([[8000.0], [-8000.0], [0.0]], dtype=dtype).requires_grad_()
    weight = torch.tensor([[1.0], [0.0], [-1.0]], dtype=dtype).requires_grad_()
    targets = torch.tensor([2, 2, 1])
    nll = token_nll(x, weight, targets)
    expected = torch.tensor([16_000.0, 0.0, torch.tensor(3.0).log()], dtype=dtype)
    torch.testing.assert_close(nll, expected)
    total = summed_nll(x, weight, targets)
    total.backward()
    assert total.item() == pytest.approx(16_000 + 1.0986122886681098, rel=1e-7)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[2.0], [0.0], [0.0]], dtype=dtype))


def test_certain_token_has_a_loss_of_its_own_size() -> None:
    """−log(1 − ε) must not round to zero too early, nor become negative."""
    x = torch.tensor([[12.0]], dtype=torch.float64)
    weight = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    nll = token_nll(x, weight, torch.tensor([0]))
    assert nll.item() == pytest.approx(3.775e-11, rel=1e-3)
    assert (token_nll(x.float() * 4, weight.float(), torch.tensor([0])) >= 0).all()


def test_no_matrix_of_tokens_times_vocabulary_is_kept_or_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, width, vocab, rows = 512, 8, 1024, 32
    monkeypatch.setattr(loss, "CHUNK_BYTES", 4 * vocab * rows)
    x = torch.randn(tokens, width).requires_grad_()
    weight = torch.randn(vocab, width).requires_grad_()
    targets = torch.randint(vocab, (tokens,))
    kept: list[int] = []

    def pack(x: Tensor) -> Tensor:
        kept.append(x.untyped_storage().nbytes())
        return x

    with (
        torch.profiler.profile(profile_memory=True) as profile,
        torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x),
    ):
        summed_nll(x, weight, targets)
    whole = 4 * tokens * vocab
    assert sum(kept) <= 4 * (tokens + vocab) * width + 8 * tokens
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert largest <= whole / 8


def test_bf16_autocast_multiplies_narrow_and_sums_wide() -> None:
    x, weight, targets = inputs(3.0, torch.float32)
    wide = summed_nll(x, weight, targets)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = summed_nll(x, weight, targets)
        each = token_nll(x, weight, targets)
    assert narrow.dtype is torch.float64
    assert each.dtype is torch.float32
    assert narrow.item() == pytest.approx(each.double().sum().item(), rel=1e-6)
    assert narrow.item() == pytest.approx(wide.item(), rel=0.02)
    assert narrow.item() != wide.item()
    gradients = torch.autograd.grad(narrow, (x, weight))
    assert all(g.dtype is torch.float32 for g in gradients)
    for gradient, reference in zip(gradients, torch.autograd.grad(wide, (x, weight)), strict=True):
        assert (gradient - reference).abs().max() < 0.03 * reference.abs().max()
