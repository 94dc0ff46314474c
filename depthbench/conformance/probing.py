"""What layer probes ask: depth states, skipping, exchanging, and the paths between sublayers."""

from collections.abc import Iterator, Sequence
from math import inf, isfinite
from typing import cast

import torch
from torch import Tensor

from depthbench.conformance.checks import check, fail
from depthbench.conformance.subject import Subject
from depthbench.conformance.tiny import branch, relative, shape_of, tokens_of
from depthbench.model.decoder import Block
from depthbench.model.loss import token_nll
from residuals import State

NUM_BLOCKS = 4
SAME = 1e-10
NEEDS = ("forward", "in-place", "determinism", "depth-state")


class Run:
    """A stack run once, and again from any block with others left out or exchanged.

    `states`: before each block, and the last.
    """

    def __init__(self, subject: Subject) -> None:
        self.model = subject.moved(shape_of(NUM_BLOCKS))
        self.design = self.model.design
        tokens = tokens_of(2, 6)
        self.embedded, self.targets = self.model.embedding(tokens[:, :-1]), tokens[:, 1:]
        self.seq = self.model.sequence(5)
        self.states = [self.design.start(self.embedded)]
        for block in range(NUM_BLOCKS):
            self.states.append(self.halves(block, block, self.states[-1])[1][0])
        self.first = [tuple(tensor.clone() for tensor in state) for state in self.states]

    def halves(self, place: int, b: int, state: State) -> tuple[tuple[State, Tensor], ...]:
        """State after, and output of, both sublayers of block b, run at `place`."""
        visit = 2 * (place if self.design.positional else b)
        block = cast(Block, self.model.blocks[b])
        return block.halves(2 * b, visit, self.design, state, self.seq)

    def end(self, start: int, state: State, order: Sequence[int] = range(NUM_BLOCKS)) -> State:
        """The last state, going on from `state` before block `start` in this order."""
        for place in range(start, NUM_BLOCKS):
            state = self.halves(place, order[place], state)[1][0]
        return state

    def exchanged(self, i: int, j: int) -> State:
        """The last state when blocks i and j run in each other's place."""
        order = list(range(NUM_BLOCKS))
        order[i], order[j] = j, i
        return self.end(i, self.design.exchange(2 * i, 2 * j, self.states[i]), order)

    def sublayers(self) -> Iterator[tuple[State, Tensor]]:
        """State before each visit, and that sublayer's output (B, T, D)."""
        for block, before in enumerate(self.states[:-1]):
            (between, attention), (_, mlp) = self.halves(block, block, before)
            yield before, attention
            yield between, mlp

    def loss(self, last: State, after: str = "") -> float:
        """Mean nats per token with `last` as the last state. Fails if it is not finite."""
        x = self.model.final_norm(self.design.read_out(2 * NUM_BLOCKS, last))
        loss = token_nll(x, self.model.head.weight, self.targets).mean().item()
        if not isfinite(loss):
            fail(f"the loss is {loss} {after}")
        return loss

    def check_untouched(self, by: str) -> None:
        """Fails if the states are no longer what they were."""
        for state, old in zip(self.states, self.first, strict=True):
            if len(state) != len(old) or not all(map(torch.equal, state, old)):
                fail(f"{by} changes the state it is given: states are shared, copy first")


@check(
    "depth-state",
    *("depth_state", "read_out", "finish", "mixing", "streams_of", "running_weight"),
    needs=("forward", "in-place", "determinism"),
)
@torch.no_grad()
def depth_state(subject: Subject) -> str:
    """Are there depth states (B, T, ·) and read-outs (B, T, D), the last as `finish` gives it?"""
    run = Run(subject)
    design, widths = run.design, set[int]()
    for block, state in enumerate(run.states):
        z, x = design.depth_state(2 * block, state), design.read_out(2 * block, state)
        if z.shape[:2] != (2, 5) or z.dim() != 3 or not z.isfinite().all():
            fail(f"the depth state before block {block} is {tuple(z.shape)}, or not finite")
        if x.shape != (2, 5, 16) or not x.isfinite().all():
            fail(f"the read-out before block {block} is {tuple(x.shape)}, or not finite")
        widths.add(z.shape[-1])
    if len(widths) > 1:
        fail(f"depth states are {sorted(widths)} wide: probes compare them, give one width")
    off = relative(design.read_out(2 * NUM_BLOCKS, run.states[-1]), design.finish(run.states[-1]))
    if not off <= SAME:
        fail(f"the read-out at the end differs from `finish` by {off:.2g}")
    _check_streams(run)
    run.check_untouched("depth_state, read_out or mixing")
    return f"{NUM_BLOCKS + 1} depths of width {widths.pop()}"


def _check_streams(run: Run) -> None:
    design = run.design
    for visit, (state, _) in enumerate(run.sublayers()):
        weight_BT = design.running_weight(visit, state)
        if weight_BT is not None and weight_BT.shape != (2, 5):
            fail(f"running_weight is {tuple(weight_BT.shape)} at visit {visit}, not (B, T)")
        mixing, streams = design.mixing(visit, visit, state), design.streams_of(state)
        if (mixing is None) != (streams is None):
            fail("mixing and streams_of go together: answer both, or None to both")
        if mixing is not None and streams is not None:
            y, carry = branch(run.model, visit, *design.read(visit, visit, state), run.seq)
            carried = design.streams_of(design.write(visit, visit, carry, torch.zeros_like(y)))
            off = inf if carried is None else relative(mixing @ streams, carried)
            if not off <= SAME:
                fail(f"mixing times the streams is not what is carried on, by {off:.2g}")


@check("skip", "skip", needs=NEEDS)
@torch.no_grad()
def skip(subject: Subject) -> str:
    """Can each block be left out: a finite loss, the prefix reused exactly, nothing changed?"""
    run = Run(subject)
    whole, losses = run.loss(run.states[-1]), list[float]()
    for block, state in enumerate(run.states[:-1]):
        again = run.end(block, state)
        if not all(map(torch.equal, again, run.states[-1])):
            fail(f"going on from the state before block {block} gives another end")
        for copy in (False, True):
            left_out = run.design.skip(2 * block, state, copy)
            after = f"after block {block} is skipped"
            losses.append(run.loss(run.end(block + 1, left_out), after))
    run.check_untouched("skip")
    if whole in losses:
        fail("the loss does not change when a block is skipped: it still runs")
    return f"loss {whole:.3f}, {min(losses):.3f} to {max(losses):.3f} without a block"


@check("exchange", "exchange", needs=NEEDS)
@torch.no_grad()
def exchange(subject: Subject) -> str:
    """Can two blocks change places: with itself nothing happens, twice undoes it?"""
    run = Run(subject)
    design, last, losses = run.design, run.states[-1], list[float]()
    for i, j in ((0, 1), (1, 2), (0, NUM_BLOCKS - 1)):
        if not relative(design.finish(run.exchanged(i, i)), design.finish(last)) <= SAME:
            fail(f"exchanging block {i} with itself changes the end")
        twice = design.exchange(2 * i, 2 * j, design.exchange(2 * i, 2 * j, run.states[i]))
        if not relative(design.finish(run.end(i, twice)), design.finish(last)) <= SAME:
            fail(f"exchanging blocks {i} and {j} twice changes the end")
        losses.append(run.loss(run.exchanged(i, j), f"after blocks {i} and {j} are exchanged"))
    run.check_untouched("exchange")
    if run.loss(last) in losses:
        fail("the loss does not change when two blocks are exchanged: they run in place")
    return f"loss {run.loss(last):.3f}, {min(losses):.3f} to {max(losses):.3f} exchanged"
