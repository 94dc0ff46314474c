"""Tiny models, and what tests of designs measure on them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

import residuals
from depthbench.config import Shape
from depthbench.model.decoder import Decoder
from residuals import Design, Stack

EXACT_EPS = 1e-24
VOCAB = 23
Branch = Callable[[int, Tensor], Tensor]


def shape_of(layers: int = 2, d_model: int = 16, heads: int = 2, kv_heads: int = 2) -> Shape:
    return Shape(layers=layers, d_model=d_model, ffn=24, heads=heads, kv_heads=kv_heads)


def stack_of(shape: Shape, eps: float = EXACT_EPS, rounds: int = 1) -> Stack:
    sizes = (shape.layers, shape.d_model, shape.heads, shape.kv_heads, shape.head_dim)
    return Stack(*sizes, norm_eps=eps, num_rounds=rounds)


def make_design(name: str, layers: int = 2, d_model: int = 16, seed: int = 0, **o: Any) -> Design:
    """A design alone, initialised, in float64."""
    design = residuals.build(name, stack_of(shape_of(layers, d_model)), **o)
    residuals.initialise(design, seed)
    return design.double()


def make_model(
    name: str,
    shape: Shape | None = None,
    *,
    eps: float = EXACT_EPS,
    rounds: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> Decoder:
    """An initialised decoder with norm eps small enough for exact statements."""
    shape = shape or shape_of()
    design = residuals.build(name, stack_of(shape, eps, rounds), **options)
    model = Decoder(shape, VOCAB, design)
    residuals.initialise(model, seed)
    return model.to(dtype)


@torch.no_grad()
def perturb(module: nn.Module, scale: float = 0.3, seed: int = 7) -> None:
    """Moves every parameter off its initial value, so that no term is zero or one by chance."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter += scale * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


def tokens_of(batch: int = 2, length: int = 9, seed: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB, (batch, length), generator=generator)


def randn(*size: int, seed: int = 11, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def gradients(loss: Tensor, module: nn.Module) -> dict[str, Tensor]:
    """Gradient of every parameter by name; a parameter that the loss does not reach is an error."""
    names, parameters = zip(*module.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def relative(actual: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest expected entry."""
    scale = expected.abs().max().clamp_min(1e-300)
    return ((actual - expected).abs().max() / scale).item()


def drive(
    design: Design, x_BTD: Tensor, branch: Branch
) -> tuple[Tensor, list[Tensor], list[tuple[Tensor, ...]]]:
    """Read-out, the normed sublayer inputs and the states before them; sublayer k is `branch`."""
    state, inputs, states = design.start(x_BTD), [], []
    for visit in range(design.stack.num_visits):
        k = visit % design.stack.num_sublayers
        states.append(state)
        x, carry = design.read(k, visit, state)
        inputs.append(x)
        state = design.write(k, visit, carry, branch(k, x))
    states.append(state)
    return design.finish(state), inputs, states


def random_branches(num: int, d_model: int) -> Branch:
    weights = randn(num, d_model, d_model, seed=5) / d_model**0.5
    return lambda k, x: torch.tanh(x @ weights[k])


@contextmanager
def saved_bytes(ignored: nn.Module) -> Iterator[list[int]]:
    """Bytes that autograd keeps, every storage once, the module's own parameters left out."""
    own = {p.untyped_storage().data_ptr() for p in ignored.parameters()}
    kept: dict[int, Tensor] = {}
    total: list[int] = []

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        yield total
    total.append(sum(x.untyped_storage().nbytes() for x in kept.values()))
