"""A model run once on a fixed batch, and again from any place with blocks left out or exchanged.

A place is a position in the order of execution, 0 … E − 1; a block has one for every visit. What
stands before each place is kept, so that what comes before a change is never run again.

Places lie in segments; what a state, leaving out and exchanging mean there, stands in
`probes.layout`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from depthbench.model.decoder import LanguageModel
from depthbench.model.loss import summed_nll, token_nll
from depthbench.probes.layout import Segment, layout_of
from residuals import State


class Point(NamedTuple):
    """What stands before a place: the e of loops to come (B, T, D), and the segment's state."""

    e_BTD: Tensor
    state: State


class Executed:
    """One eager forward pass of `tokens_BT`, to be scored on `targets_BT`, without gradients.

    `points`: before each place, and the last. `outputs`: each block's summed branch outputs
    (B, T, D), before whatever the design does to them. `z`: depth states (B, T, ·) of `points`.
    """

    def __init__(self, model: LanguageModel, tokens_BT: Tensor, targets_BT: Tensor) -> None:
        self.model = model
        self.begin, self.segments = layout_of(model)
        self.tokens_BT = tokens_BT
        self.targets_BT = targets_BT
        self.seq = model.sequence(tokens_BT.shape[1])
        self._at = [segment for segment in self.segments for _ in segment.places]
        self._at.append(self.segments[-1])
        with torch.no_grad():
            point = self._entered(self.segments[0], *self.begin(model.embedding(tokens_BT)))
            self.points, self.outputs = [point], list[Tensor]()
            for after, output in self.run(0, point):
                self.points.append(after)
                self.outputs.append(output)
            self.z = [self.depth_state(place, point) for place, point in enumerate(self.points)]

    @property
    def num_places(self) -> int:
        """Blocks executed, E."""
        return len(self._at) - 1

    def segment(self, place: int) -> Segment:
        """The segment of `place`; of E, which is behind all places, the last."""
        return self._at[place]

    def depth_state(self, place: int, point: Point) -> Tensor:
        """z before `place`: (B, T, ·)."""
        segment = self.segment(place)
        return segment.design.depth_state(2 * (place - segment.first), point.state)

    def read_out(self, place: int, point: Point) -> Tensor:
        """What the head would multiply if nothing were run from `place` on: (B, T, D)."""
        segment = self.segment(place)
        read_BTD = segment.design.read_out(2 * (place - segment.first), point.state)
        x_BTD: Tensor = self.model.final_norm(segment.leave(point.e_BTD, read_BTD)[1])
        return x_BTD

    def loss(self, point: Point) -> float:
        """Mean nats per token with `point` as the last."""
        x_BTD = self.read_out(self.num_places, point)
        nll_BT = token_nll(x_BTD, self.model.head.weight, self.targets_BT)
        return nll_BT.mean(dtype=torch.float64).item()

    def run(
        self, start: int, point: Point, order: Sequence[int] | None = None
    ) -> Iterator[tuple[Point, Tensor]]:
        """Point after, and branch outputs of, each place from `start` on.

        At place p the block of place `order[p]` runs, its own by default.
        """
        for place in range(start, self.num_places):
            owner = order[place] if order else place
            (_, attention), (state, mlp) = self.halves(place, owner, point.state)
            point = self._after(place, Point(point.e_BTD, state))
            yield point, attention + mlp

    def end(self, start: int, point: Point, order: Sequence[int] | None = None) -> Point:
        """The last point when it goes on from `point` before `start`; none is kept on the way."""
        for after, _ in self.run(start, point, order):
            point = after
        return point

    def skipped(self, place: int, copy: bool = False) -> Point:
        """The point before `place + 1` when the block at `place` is left out."""
        segment, (e_BTD, state) = self.segment(place), self.points[place]
        left_out = segment.design.skip(2 * (place - segment.first), state, copy)
        return self._after(place, Point(e_BTD, left_out))

    def exchangeable(self, place: int, other: int) -> bool:
        """Whether the two lie in one segment."""
        return self.segment(place) is self.segment(other)

    def exchanged(self, place: int, other: int) -> Point:
        """The last point when the blocks of `place` and the later `other` run exchanged."""
        order = list(range(self.num_places))
        order[place], order[other] = other, place
        segment, (e_BTD, state) = self.segment(place), self.points[place]
        at, later = (2 * (p - segment.first) for p in (place, other))
        swapped = segment.design.exchange(at, later, state)
        return self.end(place, Point(e_BTD, swapped), order)

    def halves(
        self, place: int, owner: int, state: State
    ) -> tuple[tuple[State, Tensor], tuple[State, Tensor]]:
        """What the block of place `owner` does at `place`: see `Block.halves`."""
        segment = self.segment(place)
        block, k = segment.block(owner)
        visit = 2 * ((place if segment.design.positional else owner) - segment.first)
        return block.halves(k, visit, segment.design, state, self.seq)

    def sublayers(self, segment: Segment) -> Iterator[tuple[State, Tensor]]:
        """State before each visit and that sublayer's output (B, T, D), in order; run anew."""
        for place in segment.places:
            before = self.points[place].state
            (between, attention), (_, mlp) = self.halves(place, place, before)
            yield before, attention
            yield between, mlp

    def last(self, segment: Segment) -> State:
        """The state after the segment's last block, run anew."""
        place = segment.places[-1]
        return self.halves(place, place, self.points[place].state)[1][0]

    def traced(self, step: Callable[[int, State], State]) -> Tensor:
        """Mean loss with the gradients that training has; `step` runs the block of a place."""
        with torch.enable_grad():
            # The weights may be frozen: what enters, and what a cut leaves, carries the graph.
            embedded = self.model.embedding(self.tokens_BT).detach().requires_grad_()
            e_BTD, x_BTD = self.begin(embedded)
            for segment in self.segments:
                with torch.set_grad_enabled(not segment.cut):
                    e_BTD, state = self._entered(segment, e_BTD, x_BTD)
                    for place in segment.places:
                        state = step(place, state)
                    e_BTD, x_BTD = segment.leave(e_BTD, segment.design.finish(state))
                x_BTD = x_BTD.requires_grad_() if segment.cut else x_BTD
            head = self.model.head.weight
            total = summed_nll(self.model.final_norm(x_BTD), head, self.targets_BT)
            return total / self.targets_BT.numel()

    def _after(self, place: int, point: Point) -> Point:
        """The point before `place + 1`, of that after the block at `place` in its segment."""
        here, there = self.segment(place), self.segment(place + 1)
        if here is there:
            return point
        left = here.leave(point.e_BTD, here.design.finish(point.state))
        return self._entered(there, *left)

    def _entered(self, segment: Segment, e_BTD: Tensor, x_BTD: Tensor) -> Point:
        e_BTD, x_BTD = segment.enter(e_BTD, x_BTD)
        return Point(e_BTD, segment.design.start(x_BTD))
