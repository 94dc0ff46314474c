"""Tiny models: their sizes and tokens, how they are filled, and what is measured on them."""

from contextlib import suppress
from typing import cast

import torch
from torch import Tensor, nn

import residuals
from depthbench.config import Shape
from depthbench.model.decoder import Block, Decoder, LanguageModel
from residuals import DesignError, Sequence, State

VOCAB = 23
EXACT_EPS = 1e-24
"""Norm eps small enough for statements that hold to the last digits in float64."""


def shape_of(layers: int = 3, d_model: int = 16, heads: int = 2, kv_heads: int = 2) -> Shape:
    return Shape(layers=layers, d_model=d_model, ffn=24, heads=heads, kv_heads=kv_heads)


def fill(model: nn.Module, seed: int) -> None:
    """Initial values by rule; what has none keeps its own, and `roles` says so."""
    with suppress(DesignError):
        residuals.initialise(model, seed)
        return
    kept = [(module, module._parameters, module._buffers) for module in model.modules()]
    try:
        for module, parameters, _ in kept:
            ruled = getattr(module, "rules", {})
            module._parameters = {n: p for n, p in parameters.items() if n in ruled}
            module._buffers = {}
        residuals.initialise(model, seed)
    finally:
        for module, parameters, buffers in kept:
            module._parameters, module._buffers = parameters, buffers


@torch.no_grad()
def move(module: nn.Module, scale: float = 0.3, seed: int = 7) -> None:
    """Adds noise to every parameter."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.add_(noise.to(parameter.dtype), alpha=scale)


def tokens_of(batch: int = 2, length: int = 9, seed: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB, (batch, length), generator=generator)


def branch(
    model: Decoder, visit: int, x_BTD: Tensor, carry: State, seq: Sequence
) -> tuple[Tensor, State]:
    """What the sublayer at `visit` of an unlooped stack makes of its normed input, and carry."""
    block = cast(Block, model.blocks[visit // 2])
    if visit % 2:
        y_BTD: Tensor = block.mlp(x_BTD)
        return y_BTD, carry
    q, k, v = block.attention.project(x_BTD)
    o_BTHd, carry = model.design.attend(visit, visit, carry, q, k, v, seq)
    return block.attention.output(o_BTHd), carry


def summed_nll(model: LanguageModel, length: int = 9) -> Tensor:
    """The training loss, a sum, on fixed tokens."""
    tokens = tokens_of(2, length + 1)
    return model.summed_nll(tokens[:, :-1], tokens[:, 1:])


def gradients(loss: Tensor, module: nn.Module) -> dict[str, Tensor]:
    """Of every parameter by name, zero where the loss does not reach it."""
    names, parameters = zip(*module.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


def relative(actual: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest expected entry; NaN where either is not finite."""
    if actual.shape != expected.shape:
        return float("inf")
    scale = expected.abs().max().clamp_min(1e-300)
    return ((actual - expected).abs().max() / scale).item()
