"""Attention Residuals, Full and Block (arXiv 2603.15031).

Sources are the embedding and sums of groups of `group` sublayer outputs. Consumer c reads
`h = Σ_i softmax_i(q_c · RMSNorm_c(v_i)) v_i` over all of them, the running partial sum included;
there is one consumer for every visit that sees more than one source, and a last one before the
final norm.

`q·RMSNorm(v) = (q∘gain)·v/rms(v)`: the logits of a completed source for all later consumers are one
matrix product when it is produced. The state is flat:

    keys_CD, v_0 … v_n, [partial], rows

keys are `q∘gain` in order of visits, gathered once a forward; rows are the logits (B, T) of
v_0 … v_n for the next consumer, then for the one after it, and so on.

So the next consumers' means over the sources so far are known, too, and one small matrix product a
token gives `AHEAD` of them for one reading of the sources. A consumer then reads its mean like one
source more, whose logit is log Σ exp of the logits that it covers. Such pairs, (1, B, T, D) and
(1, B, T, 1) for each of the next consumers, stand in the state after the last source they cover;
they only save time: a state without them means the same.
"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import NamedTuple

import torch
from torch import Tensor

from residuals.contract import Design, RoutingFlops, Stack, State
from residuals.errors import DesignError
from residuals.norms import at_least_fp32
from residuals.parameters import NORM_GAIN, ROUTING_STATIC, constant
from residuals.registry import register
from residuals.slots import (
    normed_product,
    shared,
    softmax_and_total,
    weighted_sum,
    weighted_sums,
)

AHEAD = 16
FEWEST = 10  # with fewer sources it does not pay


class _Depth(NamedTuple):
    """The state before a consumer reads: `rows` has one entry a remaining consumer."""

    keys_CD: Tensor
    sources: State
    partial: State
    rows: tuple[State, ...]
    ahead: State = ()
    num_covered: int = 0

    def flat(self) -> State:
        rows = (row for consumer in self.rows for row in consumer)
        n = self.num_covered
        wide = (*self.sources[:n], *self.ahead, *self.sources[n:], *self.partial)
        return (self.keys_CD, *wide, *rows)


class AttnRes(Design):
    """Every sublayer reads a learned softmax over depth."""

    family = "access"
    version = 1
    paper = "2603.15031"
    positional = True

    def __init__(self, stack: Stack, group: int) -> None:
        super().__init__(stack)
        self.group = group
        self.norms = stack.norms()
        # In a loop the first sublayer, too, sees several sources from its second visit on.
        self.first = 0 if stack.num_rounds > 1 else 1
        num_consumers = stack.num_sublayers - self.first + 1
        size = (num_consumers, stack.d_model)
        self.declare("queries", size, ROUTING_STATIC, constant(0.0))
        self.declare("key_gains", size, NORM_GAIN, constant(1.0))
        self.queries: Tensor
        self.key_gains: Tensor

    def start(self, x_BTD: Tensor) -> State:
        x_BTD = shared(at_least_fp32(x_BTD))
        keys = (self.queries * self.key_gains).to(x_BTD.dtype)
        if self.stack.num_rounds > 1:
            last = self.stack.num_sublayers
            visited = [v % last for v in range(1, self.stack.num_visits)]
            keys = keys[torch.tensor([*visited, last], device=keys.device)]
        return _Depth(keys, (x_BTD,), (), tuple((row,) for row in self._logits(keys, x_BTD))).flat()

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        if visit == 0:
            return self.norms[k](state[1]), state
        mixed, _, depth = self._mix(self._looking_ahead(visit, state))
        return self.norms[k](mixed), depth.flat()

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        depth = self._unflatten(carry, self.stack.num_visits - visit)
        partial = depth.partial
        total = partial[0] + y_BTD if partial else y_BTD.to(depth.sources[0].dtype)
        if (visit + 1) % self.group:
            return depth._replace(partial=(total,)).flat()
        return self._completed(depth, total).flat()

    def _completed(self, depth: _Depth, total: Tensor) -> _Depth:
        keys, rows, total = depth.keys_CD, depth.rows, shared(total)
        added = self._logits(keys[len(keys) - len(rows) :], total)
        rows = tuple((*old, new) for old, new in zip(rows, added, strict=True))
        return depth._replace(sources=(*depth.sources, total), partial=(), rows=rows)

    def finish(self, state: State) -> Tensor:
        return self.read_out(self.stack.num_visits, state)

    def read_out(self, visit: int, state: State) -> Tensor:
        return self.mix(visit, state)[0]

    def depth_state(self, visit: int, state: State) -> Tensor:
        return self.read_out(visit, state)

    def skip(self, visit: int, state: State, copy: bool = False) -> State:
        depth = self._before(visit, state)
        for left_out in (visit, visit + 1):
            depth = depth._replace(rows=depth.rows[min(left_out, 1) :])
            if depth.partial and (left_out + 1) % self.group == 0:
                depth = self._completed(depth, depth.partial[0])
        if copy:
            newest = 0 if depth.partial else 1
            num_older = len(depth.sources) - newest
            older = tuple(torch.full_like(row, -torch.inf) for row in depth.rows[0][:num_older])
            first = (*older, *depth.rows[0][num_older:])
            depth = depth._replace(rows=(first, *depth.rows[1:]))
        return depth.flat()

    def exchange(self, visit: int, other: int, state: State) -> State:
        # With a block travel the consumers of its MLP and at its right boundary.
        depth = self._before(visit, state)
        rows, order = list(depth.rows), list(range(len(depth.keys_CD)))
        first = len(order) - len(rows)
        for step in (0, 1):
            a, b = visit + step, other + step  # consumer c, the first of which is 1, has row c - 1
            order[a], order[b] = b, a
            rows[a - first], rows[b - first] = rows[b - first], rows[a - first]
        return depth._replace(keys_CD=depth.keys_CD[order], rows=tuple(rows)).flat()

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor]:
        for visit, state in enumerate(states):
            weights = self.mix(visit, state)[1]
            source_of = [0, *(1 + output // self.group for output in range(visit))]
            yield weights[source_of]

    def running_weight(self, visit: int, state: State) -> Tensor | None:
        return self.mix(visit, state)[1][-1] if self._before(visit, state).partial else None

    def mix(self, visit: int, state: State) -> tuple[Tensor, Tensor, _Depth]:
        """What the consumer at `visit` reads, its weights (S, B, T), and the state after it."""
        return self._mix(self._before(visit, state))

    def _mix(self, depth: _Depth) -> tuple[Tensor, Tensor, _Depth]:
        keys, sources, partial, rows, ahead, n = depth
        logits, values = rows[0][n:], (*sources[n:], *partial)
        if partial:
            key_1D = keys[len(keys) - len(rows)].unsqueeze(0)
            logits = (*logits, *self._logits(key_1D, partial[0]))
        if ahead:
            logits = (ahead[1][0, :, :, 0], *logits)
            values = (ahead[0][0], *values)
        weights = torch.softmax(torch.stack(logits), 0)
        after = depth._replace(rows=rows[1:], ahead=ahead[2:], num_covered=n if ahead[2:] else 0)
        return weighted_sum(weights, values), weights, after

    def _looking_ahead(self, visit: int, state: State) -> _Depth:
        depth = self._with_ahead(visit, state)
        if depth.ahead or len(depth.sources) < FEWEST:
            return depth
        logits_CSBT = torch.stack([torch.stack(row) for row in depth.rows[:AHEAD]])
        weights_CSBT, total_C1BT = softmax_and_total(logits_CSBT)
        means = weighted_sums(weights_CSBT, depth.sources).split(1)
        totals = total_C1BT.squeeze(1).unsqueeze(-1).split(1)
        ahead = tuple(x for pair in zip(means, totals, strict=True) for x in pair)
        return depth._replace(ahead=ahead, num_covered=len(depth.sources))

    def _before(self, visit: int, state: State) -> _Depth:
        """For probes, which change what the sums ahead were made of."""
        return self._with_ahead(visit, state)._replace(ahead=(), num_covered=0)

    def _with_ahead(self, visit: int, state: State) -> _Depth:
        return self._unflatten(state, self.stack.num_visits + 1 - max(visit, 1))

    def _unflatten(self, state: State, num_consumers: int) -> _Depth:
        """Read off the state itself: blocks that were left out have added no source."""
        ahead = [i for i, tensor in enumerate(state) if tensor.dim() == 4]
        wide = tuple(tensor for tensor in state if tensor.dim() == 3)
        first_row = 1 + len(wide) + len(ahead)
        num_sources = (len(state) - first_row) // num_consumers
        rows = (state[i : i + num_sources] for i in range(first_row, len(state), num_sources))
        return _Depth(
            state[0],
            wide[:num_sources],
            wide[num_sources:],
            tuple(rows),
            tuple(state[i] for i in ahead),
            ahead[0] - 1 if ahead else 0,
        )

    def _logits(self, keys_CD: Tensor, source_BTD: Tensor) -> State:
        return normed_product(keys_CD, source_BTD, self.stack.norm_eps).unbind(0)

    def num_extra_params(self) -> int:
        return 2 * self.stack.d_model * (self.stack.num_sublayers - self.first + 1)

    def routing_flops(self) -> RoutingFlops:
        visits = self.stack.num_visits
        logits = mixed = together = 0
        next_alone = 1  # the first consumer whose mean has not been taken ahead
        for visit in range(visits + 1):
            num_completed, partial = 1 + visit // self.group, int(visit % self.group != 0)
            if visit > 0:
                mixed += num_completed + partial
                logits += partial
                if next_alone <= visit < visits and num_completed >= FEWEST:
                    next_alone = min(visit + AHEAD, visits + 1)
                    together += (next_alone - visit) * num_completed
            if not partial:
                logits += visits + 1 - max(visit, 1)
        width = 2 * self.stack.d_model
        return RoutingFlops((logits + together) * width, (mixed - together) * width)


@register
class FullAttnRes(AttnRes):
    """`h = Σ_i softmax_i(q·N(v_i)) v_i` over the embedding and every earlier sublayer's output.

    Queries start at zero: a mean, which the next norm makes equal to Pre-LN's sum.
    """

    name = "full-attnres"
    title = "Full AttnRes"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, group=1)


@register
class BlockAttnRes(AttnRes):
    """`h = Σ_i softmax_i(q·N(v_i)) v_i` over the embedding, sums of completed groups, and the
    running partial sum of the current group.

    Groups hold whole blocks, at most eight groups a stack: `group = 2·ceil(K/8)` sublayers unless
    given. `group = 1` is Full AttnRes. A shorter last group is read as it stands.
    """

    name = "block-attnres"
    title = "Block AttnRes"

    def __init__(self, stack: Stack, *, group: int = 0) -> None:
        if group < 0:
            raise DesignError(
                f"group = {group} of design 'block-attnres': give at least 1 sublayer"
            )
        super().__init__(stack, group or 2 * ceil(stack.num_blocks * stack.num_rounds / 8))
