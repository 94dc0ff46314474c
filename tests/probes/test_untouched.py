"""Probes leave a model as it was, give the same whether it is compiled, and hold little memory."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import residuals
from depthbench import probes
from depthbench.model.decoder import Decoder
from depthbench.probes.executed import Executed
from tests.residuals.kit import make_model, perturb, shape_of, tokens_of


def executed(model: Decoder, batch: int = 2, length: int = 6) -> Executed:
    tokens = tokens_of(batch, length + 1)
    return Executed(model, tokens[:, :-1], tokens[:, 1:])


def answers(stack: Executed) -> dict[str, Any]:
    asked = (probes.get(name) for name in probes.names())
    return {probe.name: probe.measure(stack, probe.thresholds) for probe in asked}


def generic(name: str, layers: int = 3) -> Decoder:
    model = make_model(name, shape_of(layers, 8), eps=1e-6, dtype=torch.float32)
    perturb(model, 0.1)
    return model


@pytest.mark.parametrize("name", residuals.names())
def test_weights_gradients_and_flags_are_left_as_they_were(name: str) -> None:
    model = generic(name)
    model.register_buffer("constant", torch.arange(3.0))
    generator = torch.Generator().manual_seed(5)
    for number, parameter in enumerate(model.parameters()):
        if number % 2:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        parameter.requires_grad_(number % 3 > 0)
    parameters = list(model.parameters())
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    gradients = [None if p.grad is None else p.grad.clone() for p in parameters]
    flags = [p.requires_grad for p in parameters]
    torch.manual_seed(9)
    state = torch.get_rng_state()
    first = answers(executed(model))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert [p.requires_grad for p in parameters] == flags
    for p, gradient in zip(parameters, gradients, strict=True):
        assert (p.grad is None) == (gradient is None)
        assert gradient is None or torch.equal(p.grad, gradient)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    # Neither what was asked before nor whether weights are frozen changes an answer.
    stack = executed(model.requires_grad_(False))
    for probe in reversed(probes.names()):
        again = probes.get(probe).measure(stack, probes.get(probe).thresholds)
        assert repr(again) == repr(first[probe])  # None and NaN included


@pytest.mark.parametrize("name", ["pre-ln", "hc"])
def test_a_compiled_model_gives_the_same(name: str) -> None:
    torch._dynamo.reset()
    model = generic(name, 2)
    eager = answers(executed(model))
    tokens = tokens_of(2, 7)
    expected = model.token_nll(tokens[:, :-1], tokens[:, 1:])
    for block in model.blocks:
        block.compile(backend="aot_eager")
    with torch.no_grad():
        actual = model.token_nll(tokens[:, :-1], tokens[:, 1:])
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert repr(answers(executed(model))) == repr(eager)


class LiveBytes(TorchDispatchMode):
    """Most bytes, beyond those there at the start, that were alive after any operation."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        before = {x.untyped_storage()._cdata for x in tree_leaves(args) if isinstance(x, Tensor)}
        result = function(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor):
                storage = x.untyped_storage()
                if storage._cdata not in before:
                    self.live[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.live = {key: kept for key, kept in self.live.items() if not kept[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return result


def held_bytes(stack: Executed) -> int:
    """Everything that a stack keeps, each storage once."""
    points = [x for e_BTD, state in stack.points for x in (e_BTD, *state)]
    kept = [*points, *stack.outputs, *stack.z]
    storages = {x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in kept}
    return sum(storages.values())


def peaks(name: str, num: int) -> tuple[float, float]:
    """Held by the stack, and most that probes add to it, in streams of width D."""
    batch, length, width = 1, 16, 16
    stream = batch * length * width * 4
    model = make_model(name, shape_of(num, width), dtype=torch.float32, eps=1e-6)
    stack = executed(model, batch, length)
    causal = probes.get("causal")
    with torch.no_grad(), LiveBytes() as counted:
        for first in (0, 1, num // 2):
            stack.loss(stack.exchanged(first, num - 1))
        if name not in KEEP_SOURCES:
            causal.measure(stack, causal.thresholds)
        else:
            stack.loss(stack.end(1, stack.skipped(0)))
    return held_bytes(stack) / stream, counted.peak / stream


KEEP_SOURCES = ("full-attnres", "block-attnres", "moda")


@pytest.mark.parametrize(("name", "streams"), [("pre-ln", 1), ("keel", 1), ("hc", 4)])
def test_memory_is_one_state_per_block(name: str, streams: int) -> None:
    """States and branch outputs once; what a probe adds does not depend on the depth."""
    shallow, deep = peaks(name, 4), peaks(name, 16)
    embedding = streams > 1  # else the first state is that
    assert deep[0] == 17 * streams + 16 + embedding
    assert 0 < deep[1] <= shallow[1] + 1


@pytest.mark.parametrize("name", KEEP_SOURCES)
def test_memory_is_linear_in_depth_where_a_state_is_all_sources(name: str) -> None:
    """The states share their sources; a probe holds one more set of them, not one per pair."""
    shallow, deep = peaks(name, 6), peaks(name, 12)
    assert deep[0] < 2.5 * shallow[0]
    assert deep[1] < 2.5 * shallow[1]
