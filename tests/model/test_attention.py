"""Attention backends against each other and against the softmax written out."""

import sys
from collections.abc import Callable, Iterator
from math import sqrt
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from depthbench.errors import InputError
from depthbench.model import attention
from depthbench.model.attention import BACKENDS, causal, choose, flash_attention, joint
from depthbench.model.blockwise import BLOCK, blockwise
from depthbench.model.determinism import deterministic
from depthbench.model.rotary import Rotary
from tests.model.devices import DEVICES

HEAD = 8
Qkv = tuple[Tensor, Tensor, Tensor]


def rotary_at(length: int, dtype: torch.dtype = torch.float64, first: int = 0) -> Rotary:
    return Rotary.at(torch.arange(first, first + length), HEAD, 10_000.0, dtype)


def randn(*size: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype)


def qkv(length: int, heads: int, kv_heads: int, dtype: torch.dtype = torch.float64) -> Qkv:
    sizes = (heads, kv_heads, kv_heads)
    q, k, v = (
        randn(2, length, n, HEAD, seed=seed, dtype=dtype).requires_grad_()
        for seed, n in enumerate(sizes)
    )
    return q, k, v


def written_out(q: Tensor, k: Tensor, v: Tensor, rotary: Rotary) -> Tensor:
    """Every head and query by itself, without a mask."""
    q, k = rotary(q), rotary(k)
    heads, group = q.shape[2], q.shape[2] // k.shape[2]
    rows = []
    for t in range(q.shape[1]):
        row = []
        for h in range(heads):
            keys, values = k[:, : t + 1, h // group], v[:, : t + 1, h // group]
            logits = (q[:, t, None, h] * keys).sum(-1) / sqrt(HEAD)
            row.append((torch.softmax(logits, 1)[..., None] * values).sum(1))
        rows.append(torch.stack(row, 1))
    return torch.stack(rows, 1)


def with_gradients(function: Callable[[], Tensor], inputs: Qkv) -> tuple[Tensor, ...]:
    output = function()
    direction = randn(*output.shape, seed=9, dtype=output.dtype)
    return output, *torch.autograd.grad((output * direction).sum(), inputs)


TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


@pytest.mark.parametrize(
    ("backend", "kv_heads"),
    [
        ("blockwise", 4),  # serves equal numbers of heads only
        *((backend, kv_heads) for backend in ("sdpa", "plain", None) for kv_heads in (1, 2, 4)),
    ],
)
@pytest.mark.parametrize("length", [1, 9])
def test_backend_is_the_softmax_written_out(
    backend: str | None, kv_heads: int, length: int
) -> None:
    inputs, rotary = qkv(length, 4, kv_heads), rotary_at(length)
    actual = with_gradients(lambda: causal(*inputs, rotary, backend), inputs)
    expected = with_gradients(lambda: written_out(*inputs, rotary), inputs)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_backends_agree_across_block_boundaries(length: int, dtype: torch.dtype) -> None:
    inputs, rotary = qkv(length, 2, 2, dtype), rotary_at(length, dtype)
    results = {
        backend: with_gradients(lambda b=backend: causal(*inputs, rotary, b), inputs)
        for backend in ("blockwise", "sdpa", "plain")
    }
    for backend in ("blockwise", "sdpa"):
        for a, e in zip(results[backend], results["plain"], strict=True):
            assert a.dtype is dtype
            assert a.shape == e.shape
            torch.testing.assert_close(a, e, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_grouped_queries_agree_between_backends(dtype: torch.dtype) -> None:
    inputs, rotary = qkv(BLOCK + 5, 4, 2, dtype), rotary_at(BLOCK + 5, dtype)
    sdpa, plain = (
        with_gradients(lambda b=backend: causal(*inputs, rotary, b), inputs)
        for backend in ("sdpa", "plain")
    )
    for a, e in zip(sdpa, plain, strict=True):
        torch.testing.assert_close(a, e, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("length", [5, BLOCK + 9, 2 * BLOCK + 1])
@pytest.mark.parametrize("num_slots", [1, 4])
@pytest.mark.parametrize("rotate_depth_query", [False, True])
def test_joint_attention_agrees_between_backends(
    length: int, num_slots: int, rotate_depth_query: bool
) -> None:
    inputs, rotary = qkv(length, 2, 2), rotary_at(length)
    keys, values = (
        tuple(
            randn(2, length, 2, 1, HEAD, seed=first + s).requires_grad_() for s in range(num_slots)
        )
        for first in (20, 40)
    )
    results = []
    for backend in ("blockwise", "plain"):
        o = joint(*inputs, rotary, keys, values, rotate_depth_query, backend)
        direction = randn(*o.shape, seed=9)
        gradients = torch.autograd.grad((o * direction).sum(), (*inputs, *keys, *values))
        results.append((o, *gradients))
    for a, e in zip(*results, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("length", [5, BLOCK + 2])
def test_log_sum_of_blockwise_is_the_one_written_out(length: int) -> None:
    """Its value and gradient alone, and together with the output's."""
    (q, k, v), rotary = qkv(length, 2, 2), rotary_at(length)
    logits = torch.einsum("bthd,bshd->bhts", rotary(q), rotary(k)) / sqrt(HEAD)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    logits = logits.masked_fill(future, float("-inf"))
    expected = logits.logsumexp(-1).transpose(1, 2)
    o, total = blockwise(q, k, v, rotary)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
    direction, along = randn(*total.shape, seed=8), randn(*o.shape, seed=9)
    for weight in (0.0, 1.0):
        written = torch.einsum("bhts,bshd->bthd", logits.softmax(-1), v)
        losses = [
            (x * direction).sum() + weight * (y * along).sum()
            for x, y in ((total, o), (expected, written))
        ]
        found, wanted = (torch.autograd.grad(x, (q, k, v), retain_graph=True) for x in losses)
        for a, e in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-12)
    (alone,) = torch.autograd.grad((total * direction).sum(), q, retain_graph=True)
    (wanted_alone,) = torch.autograd.grad((expected * direction).sum(), q)
    torch.testing.assert_close(alone, wanted_alone, rtol=1e-11, atol=1e-12)


def test_gradcheck_of_blockwise() -> None:
    inputs, rotary = qkv(5, 2, 2), rotary_at(5)

    def both(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.cat([x.flatten() for x in blockwise(q, k, v, rotary)])

    assert torch.autograd.gradcheck(both, inputs, check_undefined_grad=False)


def test_huge_logits_do_not_overflow() -> None:
    inputs, rotary = qkv(BLOCK + 3, 2, 2, torch.float32), rotary_at(BLOCK + 3, torch.float32)
    q, k, v = (x.detach() * factor for x, factor in zip(inputs, (1e3, 1e3, 1.0), strict=True))
    for backend in ("blockwise", "sdpa", "plain"):
        assert causal(q, k, v, rotary, backend).isfinite().all()


def test_only_relative_positions_matter() -> None:
    q, k, v = qkv(9, 2, 2)
    for backend in ("blockwise", "sdpa", "plain"):
        near, far = (causal(q, k, v, rotary_at(9, first=first), backend) for first in (0, 512))
        torch.testing.assert_close(far, near, rtol=1e-10, atol=1e-11)


def test_choice_of_backend() -> None:
    assert choose(*qkv(9, 2, 2)[:2]) == "blockwise"
    assert choose(*qkv(9, 2, 1)[:2]) == "sdpa"
    assert choose(*qkv(9, 2, 2, torch.bfloat16)[:2]) == "sdpa"
    assert choose(*qkv(513, 2, 2)[:2]) == "sdpa"


def test_choice_of_backend_with_slots() -> None:
    assert choose(*qkv(9, 2, 2)[:2], slots=True) == "blockwise"
    assert choose(*qkv(9, 2, 1)[:2], slots=True) == "plain"
    assert choose(*qkv(9, 2, 2, torch.bfloat16)[:2], slots=True) == "plain"


@pytest.mark.parametrize("works", [True, False])
def test_choice_of_backend_on_a_gpu(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "flash_attention", lambda device: print if works else None)

    def chosen(dtype: torch.dtype, d: int = 64, slots: bool = False) -> str:
        with FakeTensorMode():  # a tensor in name only, which needs no GPU
            q, k = (torch.empty(2, 9, n, d, dtype=dtype, device="cuda") for n in (4, 2))
            return choose(q, k, slots)

    half = "flash" if works else "sdpa"
    assert [chosen(torch.bfloat16), chosen(torch.float16)] == [half, half]
    assert chosen(torch.float32) == "sdpa"
    assert [chosen(t, slots=True) for t in (torch.float32, torch.bfloat16)] == ["flex", "flex"]
    assert [chosen(torch.bfloat16, d, slots=True) for d in (16, 14)] == ["flex", "plain"]


BROKEN = {
    "absent": None,
    "of another torch": "raise ImportError('undefined symbol: _ZN2at4_ops5zeros4call')",
    "library gone": "raise OSError('libcudart.so.12: cannot open shared object file')",
    "of another version": "flash_attn_varlen_func = print",
    "for another GPU": (
        "def flash_attn_func(*_, **__): raise RuntimeError('only supports Ampere GPUs or newer')"
    ),
}
SOUND = """
from torch.nn.functional import scaled_dot_product_attention as sdpa
calls = []
def flash_attn_func(q, k, v, causal=False, deterministic=False):
    calls.append(deterministic)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return sdpa(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Installs a flash-attn with that code."""

    def write(code: str) -> None:
        (tmp_path / "flash_attn.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)

    monkeypatch.delitem(sys.modules, "flash_attn", raising=False)
    flash_attention.cache_clear()
    yield write
    sys.modules.pop("flash_attn", None)
    flash_attention.cache_clear()


@pytest.mark.parametrize("code", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_flash_attn_is_not_chosen(
    code: str | None, install: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if code is None:
        monkeypatch.setitem(sys.modules, "flash_attn", None)
    else:
        install(code)
    assert flash_attention("cpu") is None


def test_flash_attn_is_called_as_it_wants(install: Callable[[str], None]) -> None:
    """Its place taken by the same function on a CPU: layout, groups, mask and determinism."""
    install(SOUND)
    assert flash_attention("cpu") is not None
    inputs, rotary = qkv(9, 4, 2), rotary_at(9)
    with deterministic(True):
        found = with_gradients(lambda: causal(*inputs, rotary, "flash"), inputs)
    causal(*inputs, rotary, "flash")
    expected = with_gradients(lambda: written_out(*inputs, rotary), inputs)
    for a, e in zip(found, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-12)
    assert sys.modules["flash_attn"].calls == [False, True, False]  # the first: whether it works


# bf16 keeps 8 bits; queries and keys are rotated in it, too.
ERROR = {torch.float32: 1e-5, torch.bfloat16: 0.02}


def backends_on(device: str, dtype: torch.dtype, kv_heads: int) -> list[str]:
    if device == "cpu":
        blockwise = ["blockwise"] * (kv_heads == 4 and dtype is torch.float32)
        return [*blockwise, "sdpa", "plain"]
    flash = ["flash"] * (dtype is torch.bfloat16 and flash_attention(device) is not None)
    return [*flash, "flex", "sdpa", "plain"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ERROR)
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("head", [16, 38])  # paper ladders have heads of no round width
def test_backends_on_devices_within_the_precision_of_the_dtype(
    head: int, kv_heads: int, dtype: torch.dtype, device: str
) -> None:
    """Against the plain form in fp64 on the CPU: values, and gradients to all three."""
    length = 2 * BLOCK + 5
    sizes = ((4, 0), (kv_heads, 1), (kv_heads, 2))
    cpu = [randn(2, length, n, head, seed=seed).to(dtype) for n, seed in sizes]
    angles = Rotary.at(torch.arange(length), head, 10_000.0, torch.float64)
    exact = tuple(x.double().requires_grad_() for x in cpu)
    wanted = with_gradients(lambda: causal(*exact, angles, "plain"), exact)
    rotary = Rotary(angles.cos.to(device, torch.float32), angles.sin.to(device, torch.float32))
    for backend in backends_on(device, dtype, kv_heads):
        q, k, v = (x.to(device).requires_grad_() for x in cpu)
        output = causal(q, k, v, rotary, backend)
        direction = randn(*output.shape, seed=9).to(device)
        found = (output, *torch.autograd.grad((output * direction).sum(), (q, k, v)))
        for a, e in zip(found, wanted, strict=True):
            assert a.dtype is dtype
            error = (a.detach().double().cpu() - e).abs().max() / e.abs().max()
            assert error < ERROR[dtype], backend


def test_unknown_backend_gets_the_nearest() -> None:
    with pytest.raises(InputError, match=r"'blokwise'.*'blockwise'"):
        causal(*qkv(3, 2, 2), rotary_at(3), "blokwise")
    assert "flash" in BACKENDS  # known, though it may not be installed
