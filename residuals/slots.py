"""Sums and products over a list of per-token tensors that many later sublayers read.

Stacking the list, or letting autograd trace the sums, would store every term again for every
reader: memory quadratic in depth. And each reader would hand back a gradient tensor per term to be
added up. Here only the list itself is kept, and readers add into one gradient per term in place.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Values = tuple[Tensor, ...]


class _Shared(torch.autograd.Function):
    """Identity whose node collects the gradient that readers add in place.

    The sum is tied to one backward pass: what an incomplete pass left behind is never used.
    """

    @staticmethod
    def forward(value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.set_materialize_grads(False)
        ctx.shape = output.shape
        ctx.collected = None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dvalue: Tensor | None) -> Tensor | None:
        collected, ctx.collected = ctx.collected, None
        if collected is None or collected[0] != _pass():
            return dvalue
        total: Tensor = collected[1]
        return total if dvalue is None else total.add_(dvalue)


def _pass() -> int:
    return torch._C._current_graph_task_id()


def collects(node: Any, x: Tensor) -> bool:
    return hasattr(node, "collected") and node.shape.numel() == x.numel()


def collected_in(node: Any, value: Tensor) -> Tensor:
    """What the value's gradient is to be added to, shaped like `value`."""
    if not collects(node, value):
        return torch.zeros_like(value)
    if node.collected is None or node.collected[0] != _pass():
        node.collected = (_pass(), value.new_zeros(node.shape))
    return node.collected[1].view_as(value)  # type: ignore[no-any-return]


def _hand_back(node: Any, weight: Tensor, x: Tensor, value: Tensor) -> Tensor | None:
    """Gradient `weight · x` of a value: into its node if it is shared, else returned."""
    if not hasattr(node, "collected") or node.shape != x.shape:
        return (weight * x).sum_to_size(value.shape)
    if node.collected is None or node.collected[0] != _pass():
        node.collected = (_pass(), weight * x)
    else:
        node.collected[1].addcmul_(weight, x)
    return None


def _each(weights_S: Tensor) -> Values:
    return weights_S.unsqueeze(-1).unbind(0)


def _weighted_sum(weights_S: Tensor, values: Values) -> Tensor:
    weights = _each(weights_S)
    total = weights[0] * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total.addcmul_(weight, value)
    return total


def _dots(x: Tensor, values: Values) -> Tensor:
    ones = x.new_ones(x.shape[-1])  # a product with ones: much faster than a sum over short rows
    return torch.stack([(x * value) @ ones for value in values])


class Reader(torch.autograd.Function):
    """What both products share: inputs are kept, and the values' nodes with them."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        nodes, *tensors = inputs
        ctx.nodes = nodes
        ctx.save_for_backward(*tensors)


class _WeightedSum(Reader):
    @staticmethod
    def forward(nodes: tuple[Any, ...], weights_S: Tensor, *values: Tensor) -> Tensor:
        return _weighted_sum(weights_S, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dtotal: Tensor) -> tuple[Tensor | None, ...]:
        weights_S, *values = ctx.saved_tensors
        slots = zip(ctx.nodes, _each(weights_S), values, strict=True)
        dvalues = (_hand_back(node, weight, dtotal, value) for node, weight, value in slots)
        return None, _dots(dtotal, values), *dvalues


class _Dots(Reader):
    @staticmethod
    def forward(nodes: tuple[Any, ...], x: Tensor, *values: Tensor) -> Tensor:
        return _dots(x, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ddots: Tensor) -> tuple[Tensor | None, ...]:
        x, *values = ctx.saved_tensors
        slots = zip(ctx.nodes, _each(ddots), values, strict=True)
        dvalues = (_hand_back(node, weight, x, value) for node, weight, value in slots)
        return None, _weighted_sum(ddots, values), *dvalues


def shared(value: Tensor) -> Tensor:
    """`value`, marked as one that many sums will read: their gradients are collected in place.

    Without it everything is the same but slower; compiled code fuses the sums by itself. Gradients
    of all leaves are right; at the marked tensor itself a hook or `torch.autograd.grad` sees only
    what did not go through those sums.
    """
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and value.requires_grad):
        return value
    return _Shared.apply(value)  # type: ignore[no-any-return, no-untyped-call]


def weighted_sum(weights_S: Tensor, values: Values) -> Tensor:
    """`Σ_s weights[s] · values[s]`: weights (S, …), values S tensors (…, D) that may broadcast."""
    return _WeightedSum.apply(nodes_of(values), weights_S, *values)  # type: ignore[no-any-return, no-untyped-call]


def dots(x: Tensor, values: Values) -> Tensor:
    """`⟨x, values[s]⟩` over the last axis: (S, …)."""
    return _Dots.apply(nodes_of(values), x, *values)  # type: ignore[no-any-return, no-untyped-call]


def nodes_of(values: Values) -> tuple[Any, ...]:
    if torch.compiler.is_compiling():
        return (None,) * len(values)
    return tuple(value.grad_fn for value in values)
