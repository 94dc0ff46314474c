"""DenseFormer (Pagliardini et al., arXiv 2402.02622, sections 3.1 and 3.2)."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from residuals.contract import RoutingFlops, Stack, State
from residuals.errors import DesignError
from residuals.norms import at_least_fp32
from residuals.parameters import ROUTING_STATIC, exactly
from residuals.pre_ln import PreLN
from residuals.registry import register
from residuals.slots import shared, weighted_sum


@register
class DenseFormer(PreLN):
    """`Y_i = Σ_j α_ij X_j` after block i: a weighted sum of all block outputs and the embedding.

    X_0 is the embedding, X_i what block i, a Pre-LN block, makes of Y_{i−1}; the last Y goes to the
    final norm. Weights start at α_ii = 1, else 0: Pre-LN. They are neither positive nor normalised.
    `dilation` k takes j = i, i − k, i − 2k … only; with `period` p there is a sum after every p-th
    block only, and Y_i = X_i after the others: the paper's k×p-DenseFormer.

    State: the stream (B, T, D), which is Y_i before a block, then X_0 … X_i. Weights belong to a
    place in the order of execution. A block left out is the identity: its X is the Y before it.

    In a loop. `whole`: i counts unrolled blocks, so that a later round sees all earlier ones; each
    place has its own weights, N(N + 3)/2 of them for N = K·R. Prelude–core–coda: each segment, and
    each loop of the core, starts anew with what it is given as X_0; loops share their weights.
    """

    name = "denseformer"
    title = "DenseFormer"
    version = 1
    family = "access"
    paper = "2402.02622"
    positional = True

    def __init__(self, stack: Stack, *, dilation: int = 1, period: int = 1) -> None:
        for option, value in (("dilation", dilation), ("period", period)):
            if value < 1:
                raise DesignError(
                    f"{option} = {value} of design 'denseformer': give at least 1 block"
                )
        super().__init__(stack)
        num_blocks = stack.num_visits // 2
        self.sources = {
            i: range(i % dilation, i + 1, dilation) for i in range(period, num_blocks + 1, period)
        }
        """Of each place with a sum, the j that it sees."""
        if self.sources:
            rows = [torch.eye(len(js), device="cpu")[-1] for js in self.sources.values()]
            start = torch.cat(rows)
            self.declare("static", (len(start),), ROUTING_STATIC, exactly(start))
        self.static: Tensor

    def start(self, x_BTD: Tensor) -> State:
        x_BTD = shared(at_least_fp32(x_BTD))
        return (x_BTD, x_BTD)

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        x_BTD = carry[0] + y_BTD
        return self._after(visit, x_BTD, carry[1:]) if visit % 2 else (x_BTD, *carry[1:])

    def _after(self, visit: int, x_BTD: Tensor, earlier: State) -> State:
        """The state after a block that made `x` and ends with `visit`."""
        i = visit // 2 + 1
        x_BTD = shared(x_BTD)
        seen = (*earlier, x_BTD)
        if i not in self.sources:
            return (x_BTD, *seen)
        values = tuple(seen[j] for j in self.sources[i])
        weights_S11 = self._weights(i)[:, None, None].to(x_BTD.dtype)
        return (weighted_sum(weights_S11.expand(-1, *x_BTD.shape[:2]), values), *seen)

    def _weights(self, i: int) -> Tensor:
        first = sum(len(js) for place, js in self.sources.items() if place < i)
        return self.static[first : first + len(self.sources[i])]

    def skip(self, visit: int, state: State, copy: bool = False) -> State:
        return self._after(visit + 1, state[0], state[1:])

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor]:
        B, T = states[0][0].shape[:2]
        stream_P = states[0][0].new_ones(1)
        made = [stream_P]
        for visit in range(len(states)):
            yield stream_P[:, None, None].expand(-1, B, T)
            stream_P = torch.cat((stream_P, stream_P.new_ones(1)))
            if visit % 2:
                made.append(stream_P)
                i = visit // 2 + 1
                if i in self.sources:
                    seen = [made[j] for j in self.sources[i]]
                    seen_SP = torch.nn.utils.rnn.pad_sequence(seen, batch_first=True)
                    stream_P = self._weights(i).to(seen_SP.dtype) @ seen_SP

    def num_extra_params(self) -> int:
        return sum(len(js) for js in self.sources.values())

    def routing_flops(self) -> RoutingFlops:
        return RoutingFlops(mixing=2 * self.num_extra_params() * self.stack.d_model)
