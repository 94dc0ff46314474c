"""Attention Residuals, Full and Block (arXiv 2603.15031).

Sources are the embedding and sums of groups of `group` sublayer outputs. Consumer c reads
`h = Σ_i softmax_i(q_c · RMSNorm_c(v_i)) v_i` over all of them, the running partial sum included;
there is one consumer for every visit that sees more than one source, and a last one before the
final norm.

`q·RMSNorm(v) = (q∘gain)·v/rms(v)`: gain and query make one key. How the state holds the sources,
and what is computed ahead, stands in `residuals.sources`.
"""

from collections.abc import Iterator, Sequence
from math import ceil

import torch
from torch import Tensor

from residuals.contract import Design, RoutingFlops, Stack, State
from residuals.errors import DesignError
from residuals.norms import at_least_fp32
from residuals.parameters import NORM_GAIN, ROUTING_STATIC, constant
from residuals.registry import register
from residuals.sources import AHEAD, FEWEST, Sources


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
        x_BTD = at_least_fp32(x_BTD)
        keys = (self.queries * self.key_gains).to(x_BTD.dtype)
        if self.stack.num_rounds > 1:
            last = self.stack.num_sublayers
            visited = [v % last for v in range(1, self.stack.num_visits)]
            keys = keys[torch.tensor([*visited, last], device=keys.device)]
        return Sources.first(keys, x_BTD, self.stack.norm_eps).flat()

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        if visit == 0:
            return self.norms[k](state[1]), state
        mixed, _, sources = self._before(visit, state).looking_ahead().read()
        return self.norms[k](mixed), sources.flat()

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        sources = Sources.of(carry, self.stack.num_visits - visit, self.stack.norm_eps)
        partial = sources.partial
        total = partial[0] + y_BTD if partial else y_BTD.to(sources.completed[0].dtype)
        if (visit + 1) % self.group:
            return sources._replace(partial=(total,)).flat()
        return sources.completing(total).flat()

    def finish(self, state: State) -> Tensor:
        return self.read_out(self.stack.num_visits, state)

    def mix(self, visit: int, state: State) -> tuple[Tensor, Tensor]:
        """What the consumer at `visit` reads (B, T, D), and its weight of each source (S, B, T)."""
        return self._before(visit, state).plain().read()[:2]

    def _before(self, visit: int, state: State) -> Sources:
        num_consumers = self.stack.num_visits + 1 - max(visit, 1)
        return Sources.of(state, num_consumers, self.stack.norm_eps)

    def read_out(self, visit: int, state: State) -> Tensor:
        return self._before(visit, state).read()[0]

    def depth_state(self, visit: int, state: State) -> Tensor:
        return self.read_out(visit, state)

    def skip(self, visit: int, state: State, copy: bool = False) -> State:
        sources = self._before(visit, state).plain()
        for left_out in (visit, visit + 1):
            sources = sources._replace(rows=sources.rows[min(left_out, 1) :])
            if sources.partial and (left_out + 1) % self.group == 0:
                sources = sources.completing(sources.partial[0])
        if copy:
            num_older = len(sources.completed) - (0 if sources.partial else 1)
            row = sources.rows[0]
            # No weight beside any other logit; not infinite, or a mean of these alone were none.
            never = torch.finfo(row[0].dtype).min / 2
            older = tuple(torch.full_like(logit, never) for logit in row[:num_older])
            sources = sources._replace(rows=((*older, *row[num_older:]), *sources.rows[1:]))
        return sources.flat()

    def exchange(self, visit: int, other: int, state: State) -> State:
        # With a block travel the consumers of its MLP and at its right boundary.
        sources = self._before(visit, state).plain()
        rows, order = list(sources.rows), list(range(len(sources.keys_CD)))
        first = len(order) - len(rows)
        for step in (0, 1):
            a, b = visit + step, other + step  # consumer c, the first of which is 1, has row c - 1
            order[a], order[b] = b, a
            rows[a - first], rows[b - first] = rows[b - first], rows[a - first]
        return sources._replace(keys_CD=sources.keys_CD[order], rows=tuple(rows)).flat()

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor]:
        for visit, state in enumerate(states):
            weights = self.mix(visit, state)[1]
            source_of = [0, *(1 + output // self.group for output in range(visit))]
            yield weights[source_of]

    def running_weight(self, visit: int, state: State) -> Tensor | None:
        return self.mix(visit, state)[1][-1] if self._before(visit, state).partial else None

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

    In a loop a sublayer has the same query and key gain at every visit. `whole`: there are more
    sources in every round, so the first sublayer, which sees several from the second on, has a
    query, too.
    Prelude–core–coda: each segment, and each loop of the core, starts anew with what it is given as
    its only source, and ends with a read-out of its own, which the core's loops share.
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

    In a loop queries, sources and read-outs are as in Full AttnRes, and groups are of visits, which
    may go on from one round into the next. The default counts K·R blocks in the `whole` layout, and
    in prelude–core–coda those of one run of the segment; no group reaches across its finish.
    """

    name = "block-attnres"
    title = "Block AttnRes"

    def __init__(self, stack: Stack, *, group: int = 0) -> None:
        if group < 0:
            raise DesignError(
                f"group = {group} of design 'block-attnres': give at least 1 sublayer"
            )
        super().__init__(stack, group or 2 * ceil(stack.num_blocks * stack.num_rounds / 8))
