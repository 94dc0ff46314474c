"""A stack run once on a fixed batch, and again from any place with blocks left out or exchanged.

A place is a position in the order of execution, 0 … K·R − 1; normally place p runs block p mod K.
One state is kept per place, so that what comes before a change is never run again.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor

from depthbench.model.decoder import Block, Decoder
from depthbench.model.loss import token_nll
from residuals import State


class Executed:
    """One eager forward pass of `tokens_BT`, to be scored on `targets_BT`, without gradients.

    `states`: before each place, and the last. `outputs`: each block's summed branch outputs
    (B, T, D), before whatever the design does to them. `z`: depth states (B, T, ·) of `states`.
    """

    def __init__(self, model: Decoder, tokens_BT: Tensor, targets_BT: Tensor) -> None:
        self.model = model
        self.design = model.design
        self.tokens_BT = tokens_BT
        self.targets_BT = targets_BT
        self._seq = model.sequence(tokens_BT.shape[1])
        with torch.no_grad():
            state = model.design.start(model.embedding(tokens_BT))
            self.states, self.outputs = [state], list[Tensor]()
            for after, output in self.run(0, state):
                self.states.append(after)
                self.outputs.append(output)
            self.z = [self.depth_state(place, state) for place, state in enumerate(self.states)]

    @property
    def num_places(self) -> int:
        """Blocks executed, K·R."""
        return self.design.stack.num_visits // 2

    def depth_state(self, place: int, state: State) -> Tensor:
        """z before `place`: (B, T, ·)."""
        return self.design.depth_state(2 * place, state)

    def read_out(self, place: int, state: State) -> Tensor:
        """What the head would multiply if the stack ended before `place`: (B, T, D)."""
        x_BTD: Tensor = self.model.final_norm(self.design.read_out(2 * place, state))
        return x_BTD

    def loss(self, state: State) -> float:
        """Mean nats per token with `state` as the last."""
        x_BTD = self.read_out(self.num_places, state)
        nll_BT = token_nll(x_BTD, self.model.head.weight, self.targets_BT)
        return nll_BT.mean(dtype=torch.float64).item()

    def run(
        self, start: int, state: State, order: Sequence[int] | None = None
    ) -> Iterator[tuple[State, Tensor]]:
        """State after, and branch outputs of, each place from `start` on.

        At place p the block of place `order[p]` runs, its own by default.
        """
        for place in range(start, self.num_places):
            owner = order[place] if order else place
            (_, attention), (state, mlp) = self.halves(place, owner, state)
            yield state, attention + mlp

    def end(self, start: int, state: State, order: Sequence[int] | None = None) -> State:
        """The last state when it goes on from `state` before `start`; none is kept on the way."""
        for after, _ in self.run(start, state, order):
            state = after
        return state

    def sublayers(self) -> Iterator[tuple[State, Tensor]]:
        """State before each visit and that sublayer's output (B, T, D), in order; run anew."""
        for place, before in enumerate(self.states[:-1]):
            (between, attention), (_, mlp) = self.halves(place, place, before)
            yield before, attention
            yield between, mlp

    def skipped(self, place: int, copy: bool = False) -> State:
        """The state before `place + 1` when the block at `place` is left out."""
        return self.design.skip(2 * place, self.states[place], copy)

    def exchanged(self, place: int, other: int) -> State:
        """The last state when the blocks of `place` and the later `other` run exchanged."""
        order = list(range(self.num_places))
        order[place], order[other] = other, place
        state = self.design.exchange(2 * place, 2 * other, self.states[place])
        return self.end(place, state, order)

    def halves(
        self, place: int, owner: int, state: State
    ) -> tuple[tuple[State, Tensor], tuple[State, Tensor]]:
        """What the block of place `owner` does at `place`: see `Block.halves`."""
        b = owner % self.design.stack.num_blocks
        visit = 2 * (place if self.design.positional else owner)
        block = cast(Block, self.model.blocks[b])
        return block.halves(2 * b, visit, self.design, state, self._seq)
