"""Many weighted sums of the same per-token tensors in one reading of them.

Reading a tensor from memory costs more than multiplying it: what several readers need of it is
computed at once, by one small matrix product a token.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from residuals.norms import without_autocast
from residuals.slots import Reader, Values, collected_in, collects, nodes_of

CHUNK = 512  # tokens whose values are put side by side at a time: they stay in a CPU's cache
DEVICE_CHUNK = 8192  # elsewhere enough of them to fill the device


def _chunks(weights: Tensor) -> list[slice]:
    length = len(weights)
    size = CHUNK if weights.device.type == "cpu" else DEVICE_CHUNK
    return [slice(start, start + size) for start in range(0, length, size)]


def _tokens_first(weights_CSN: Tensor) -> Tensor:
    """(N, C, S), by the transposition of a matrix: a permutation takes ten times as long."""
    C, S, N = weights_CSN.shape
    return weights_CSN.reshape(C * S, N).t().contiguous().view(N, C, S)


def _side_by_side(values: Values, tokens: slice) -> Tensor:
    """(tokens, S, D), from which one small matrix product a token serves many sums."""
    return torch.stack([value[tokens] for value in values]).transpose(0, 1)


class _WeightedSums(Reader):
    @staticmethod
    def forward(nodes: tuple[Any, ...], weights_CSN: Tensor, *values: Tensor) -> Tensor:
        weights_NCS = _tokens_first(weights_CSN)
        (N, C, _), D = weights_NCS.shape, values[0].shape[-1]
        sums_NCD = values[0].new_empty(N, C, D)
        for chunk in _chunks(weights_NCS):
            torch.bmm(weights_NCS[chunk], _side_by_side(values, chunk), out=sums_NCD[chunk])
        return sums_NCD.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dsums_CND: Tensor) -> tuple[Tensor | None, ...]:
        weights_CSN, *values = ctx.saved_tensors
        weights_NCS = _tokens_first(weights_CSN)
        dweights_NCS = torch.empty_like(weights_NCS)
        dsums_NCD = dsums_CND.transpose(0, 1)
        slots = list(zip(ctx.nodes, values, strict=True))
        dvalues = [collected_in(node, value) for node, value in slots]
        for chunk in _chunks(weights_NCS):
            dsums = dsums_NCD[chunk]
            values_nDS = _side_by_side(values, chunk).transpose(1, 2)
            torch.bmm(dsums, values_nDS, out=dweights_NCS[chunk])
            added_nSD = torch.bmm(weights_NCS[chunk].transpose(1, 2), dsums)
            for dvalue, added in zip(dvalues, added_nSD.unbind(1), strict=True):
                dvalue[chunk] += added
        dweights_CSN = dweights_NCS.flatten(1).t().contiguous().view_as(weights_CSN)
        returned = (
            None if collects(node, value) else dvalue
            for (node, value), dvalue in zip(slots, dvalues, strict=True)
        )
        return None, dweights_CSN, *returned


class _SoftmaxAndTotal(torch.autograd.Function):
    """Keeps the weights alone, where autograd would keep the logits beside them.

    On a CPU `torch.softmax` over an axis that is not the last takes twice as long.
    """

    @staticmethod
    def forward(logits_CSx: Tensor) -> tuple[Tensor, Tensor]:
        top_C1x = logits_CSx.amax(1, keepdim=True)
        weights_CSx = (logits_CSx - top_C1x).exp_()
        sum_C1x = weights_CSx.sum(1, keepdim=True)
        return weights_CSx.div_(sum_C1x), sum_C1x.log().add_(top_C1x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dweights: Tensor, dtotal: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors
        along = (weights * dweights).sum(1, keepdim=True)
        return (dweights + (dtotal - along)).mul_(weights)  # type: ignore[no-any-return]


def weighted_sums(weights_CS: Tensor, values: Values) -> Tensor:
    """C weighted sums of the same values (…, D) at once, (C, …, D): weights (C, S, …)."""
    inputs = (weights_CS.flatten(2), *(value.flatten(0, -2) for value in values))
    with without_autocast(weights_CS):
        sums_CND = _WeightedSums.apply(nodes_of(values), *inputs)  # type: ignore[no-untyped-call]
    return sums_CND.unflatten(1, values[0].shape[:-1])  # type: ignore[no-any-return]


def softmax_and_total(logits_CS: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the second axis, and log Σ exp along it: (C, S, …) and (C, 1, …)."""
    return _SoftmaxAndTotal.apply(logits_CS)  # type: ignore[no-any-return, no-untyped-call]
