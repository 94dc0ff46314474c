"""FlexAttention and what is joined to it, against the softmax written out in fp64."""

from collections.abc import Callable, Iterator
from math import sqrt

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention

from depthbench.config import DesignRef, Shape
from depthbench.model import attention, flex
from depthbench.model.attention import choose, joint
from depthbench.model.decoder import Decoder, build_decoder
from depthbench.model.rotary import Rotary
from tests.model.devices import DEVICES

HEAD = 16


pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture(autouse=True)
def _differentiable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a CPU torch refuses gradients, which its unfused form knows very well."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    torch._dynamo.reset()  # every length is compiled anew, and there is a limit
    yield
    torch._dynamo.reset()


def drawn(*size: int, seed: int, dtype: torch.dtype, device: str) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*size, generator=generator, dtype=torch.float64)
    return x.to(device, dtype).requires_grad_()


def qkv(T: int, G: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    heads = (4, G, G)
    return [drawn(2, T, n, HEAD, seed=s, dtype=dtype, device=device) for s, n in enumerate(heads)]


def slots(T: int, G: int, num: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Keys, then values."""
    size = (2, T, G, 1, HEAD)
    return [drawn(*size, seed=20 + s, dtype=dtype, device=device) for s in range(2 * num)]


def rotary_at(T: int, dtype: torch.dtype, device: str) -> Rotary:
    return Rotary.at(torch.arange(T, device=device), HEAD, 10_000.0, dtype)


def exact(tensors: list[Tensor]) -> list[Tensor]:
    return [x.detach().double().cpu().requires_grad_() for x in tensors]


def written_out(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Of rotated q and k: the output and log Σ exp, query by query."""
    group = q.shape[2] // k.shape[2]
    outputs, totals = [], []
    for t in range(q.shape[1]):
        keys, values = (x[:, : t + 1].repeat_interleave(group, 2) for x in (k, v))
        logits = (q[:, t, None] * keys).sum(-1) / sqrt(HEAD)
        outputs.append((logits.softmax(1)[..., None] * values).sum(1))
        totals.append(logits.logsumexp(1))
    return torch.stack(outputs, 1), torch.stack(totals, 1)


def joint_written_out(
    q: Tensor, k: Tensor, v: Tensor, keys: list[Tensor], values: list[Tensor], rotate: bool
) -> Tensor:
    """Every query's logits to the positions, then to the slots, in one softmax."""
    rotary = rotary_at(q.shape[1], torch.float64, "cpu")
    group = q.shape[2] // k.shape[2]
    turned, k = rotary(q), rotary(k)
    asking = turned if rotate else q
    outputs = []
    for t in range(q.shape[1]):
        seen = [*k[:, : t + 1].unbind(1), *(slot[:, t, :, 0] for slot in keys)]
        read = [*v[:, : t + 1].unbind(1), *(slot[:, t, :, 0] for slot in values)]
        logits = torch.stack(
            [
                ((turned if s <= t else asking)[:, t] * key.repeat_interleave(group, 1)).sum(-1)
                for s, key in enumerate(seen)
            ]
        ) / sqrt(HEAD)
        weights = logits.softmax(0).unsqueeze(-1)
        outputs.append((weights * torch.stack(read).repeat_interleave(group, 2)).sum(0))
    return torch.stack(outputs, 1)


def gradients(outputs: tuple[Tensor, ...], inputs: list[Tensor]) -> list[Tensor]:
    """Of the outputs' sums along fixed directions."""
    total = torch.zeros((), dtype=torch.float64, device=outputs[0].device)
    for n, output in enumerate(outputs):
        along = drawn(*output.shape, seed=90 + n, dtype=torch.float64, device=output.device.type)
        total = total + (output * along.detach()).sum()
    return [*outputs, *torch.autograd.grad(total, inputs)]


def assert_near(found: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    """Every error against the largest value beside it."""
    for a, e in zip(found, wanted, strict=True):
        assert a.shape == e.shape
        error = (a.detach().double().cpu() - e).abs().max() / e.abs().max()
        assert error < tolerance


# bf16 keeps 8 bits; what is rounded are inputs of products and outputs.
PRECISION = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 0.015}
RUNNING = [
    (device, dtype)
    for device in DEVICES
    for dtype in PRECISION
    if device == "cpu" or dtype != torch.float64  # no fused kernel has fp64
]


@pytest.mark.parametrize(("device", "dtype"), RUNNING)
@pytest.mark.parametrize(("T", "G"), [(1, 4), (130, 2)])
def test_output_total_and_gradients(T: int, G: int, device: str, dtype: torch.dtype) -> None:
    inputs = qkv(T, G, dtype, device)
    o, total = flex.with_total(*inputs)
    assert o.dtype is dtype
    assert total.dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    plain = exact(inputs)
    wanted = gradients(written_out(*plain), plain)
    assert_near(gradients((o, total), inputs), wanted, PRECISION[dtype])


@pytest.mark.parametrize(("device", "dtype"), RUNNING)
@pytest.mark.parametrize(("rotate", "num", "G"), [(False, 1, 4), (True, 3, 1), (False, 2, 2)])
def test_joint_softmax(rotate: bool, num: int, G: int, device: str, dtype: torch.dtype) -> None:
    T = 21
    inputs = [*qkv(T, G, dtype, device), *slots(T, G, num, dtype, device)]
    keys, values = tuple(inputs[3 : 3 + num]), tuple(inputs[3 + num :])
    rotary = rotary_at(T, dtype, device)
    o = joint(*inputs[:3], rotary, keys, values, rotate, "flex")
    assert o.dtype is dtype
    plain = exact(inputs)
    expected = joint_written_out(*plain[:3], plain[3 : 3 + num], plain[3 + num :], rotate)
    wanted = gradients((expected,), plain)
    assert_near(gradients((o,), inputs), wanted, PRECISION[dtype])


@pytest.mark.parametrize("device", DEVICES)
def test_slots_are_weighed_in_fp32_under_autocast(device: str) -> None:
    """With 40 slots beside 40 positions errors of bf16 logits, and of sums in bf16, would add up.

    Values are all one, so that the output is the sum of the weights.
    """
    T = 40
    q, k, v = qkv(T, 4, torch.bfloat16, device)
    keys = slots(T, 4, 20, torch.bfloat16, device)
    with torch.autocast(device, torch.bfloat16):
        logits = attention.slot_logits(q, tuple(keys))
        rotary = rotary_at(T, torch.float32, device)
        ones = tuple(torch.ones_like(key) for key in keys)
        o = joint(q, k, torch.ones_like(v), rotary, tuple(keys), ones, backend="flex")
    assert logits.dtype is torch.float32
    wanted = torch.stack([(q.double() * key.double().squeeze(-2)).sum(-1) for key in keys]) / 4
    torch.testing.assert_close(logits.squeeze(-1).double(), wanted, rtol=1e-5, atol=1e-5)
    assert o.dtype is torch.bfloat16
    torch.testing.assert_close(o, torch.ones_like(o), rtol=0, atol=2**-8)


def test_a_model_of_slots_is_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU would run it: from `choose` to the gradients of all parameters."""

    def loss_and_gradients() -> list[Tensor]:
        shape = Shape(layers=3, d_model=64, ffn=32, heads=4, kv_heads=2)
        reference = DesignRef(name="moda", version=1)
        model: Decoder = build_decoder(shape, 23, reference, 1e-6, 1).double()
        ids = torch.randint(0, 23, (2, 34), generator=torch.Generator().manual_seed(0))
        loss = model.summed_nll(ids[:, :-1], ids[:, 1:])
        return [loss, *torch.autograd.grad(loss, list(model.parameters()))]

    asked = []

    def as_on_a_gpu(q: Tensor, k: Tensor, slots: bool = False) -> str:
        asked.append(slots)
        return "flex" if slots else "sdpa"

    wanted = loss_and_gradients()
    monkeypatch.setattr(attention, "choose", as_on_a_gpu)
    found = loss_and_gradients()
    assert asked == [False, True, True]  # the first block has no slots to see
    for a, e in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-10, atol=1e-12)


def test_one_graph_when_traced() -> None:
    """Nothing breaks the graph of a compiled model."""
    inputs = [*qkv(21, 2, torch.float64, "cpu"), *slots(21, 2, 1, torch.float64, "cpu")]
    rotary = rotary_at(21, torch.float64, "cpu")

    def attend(q: Tensor, k: Tensor, v: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return joint(q, k, v, rotary, (key,), (value,), backend="flex")

    wanted = gradients((attend(*inputs),), inputs)
    traced: Callable[..., Tensor] = torch.compile(attend, backend="eager", fullgraph=True)
    assert_near(
        gradients((traced(*inputs),), inputs),
        [x.detach() for x in wanted],
        PRECISION[torch.float64],
    )


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU here")
def test_no_matrix_of_all_pairs_on_a_gpu() -> None:
    """4096 × 4096 × 8 heads in bf16 would be 256 MiB; inputs, outputs and gradients are 48."""
    inputs = [drawn(1, 4096, 8, 64, seed=s, dtype=torch.bfloat16, device="cuda") for s in range(3)]
    assert choose(*inputs[:2], slots=True) == "flex"
    flex.with_total(*inputs)[0].sum().backward()  # makes the mask and the kernels
    torch.cuda.reset_peak_memory_stats()
    o, total = flex.with_total(*inputs)
    (o.sum() + total.sum()).backward()
    assert torch.cuda.max_memory_allocated() < 160 * 2**20
