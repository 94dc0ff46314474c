"""What layer probes ask of a design, with the answers of a plain residual stream.

A design overrides what its state makes different. A block is named by the visit of its attention
sublayer; its MLP's visit is the next.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

State = tuple[Tensor, ...]


class Probed:
    """Depth state, read-out, skipping and exchanging of blocks, and the paths between sublayers."""

    positional: ClassVar[bool] = False
    """Depth constants belong to the place in the order of execution, not to the block.

    When blocks are exchanged, `visit` is then the new place; else it stays the block's own, and
    what depends on it travels with the block.
    """

    def finish(self, state: State) -> Tensor:
        """What the final norm reads (B, T, D)."""
        return state[0]

    def depth_state(self, visit: int, state: State) -> Tensor:
        """z, the state before `visit` as probes compare it: (B, T, ·)."""
        return state[0]

    def read_out(self, visit: int, state: State) -> Tensor:
        """What the final norm would read if the stack ended before `visit`: (B, T, D)."""
        return self.finish(state)

    def skip(self, visit: int, state: State, copy: bool = False) -> State:
        """The state after the block at `visit`, left out: it wrote nothing.

        `copy` is for designs whose next reader chooses among sources: it takes the newest.
        """
        return state

    def exchange(self, visit: int, other: int, state: State) -> State:
        """The state before `visit` from which its block and the later one at `other` run swapped.

        Exchanges what a design keeps for a place and should travel; k and `visit` do the rest.
        """
        return state

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor] | None:
        """Weight of the embedding and of each earlier sublayer's output in every sublayer's input.

        `states`: those before each visit and the last. Yields for each of them (1 + visit, B, T):
        what is read, before its norm, is the sum of the embedding and the outputs so far under
        these weights. None if the design has no such weights, as when norms stand on the stream.
        """
        return None

    def mixing(self, k: int, visit: int, state: State) -> Tensor | None:
        """How sublayer k carries residual streams on, (B, T, m, m): row t weighs them in stream t.

        None for a design with one stream.
        """
        return None

    def streams_of(self, state: State) -> Tensor | None:
        """The residual streams (B, T, m, D), None for a design with one."""
        return None

    def running_weight(self, visit: int, state: State) -> Tensor | None:
        """Weight (B, T) of the running partial sum in what is read at `visit`, None without one."""
        return None


def unit_paths(states: Sequence[State]) -> Iterator[Tensor]:
    """Path weights of a stream to which every sublayer's output is added as it is: all one."""
    for visit, state in enumerate(states):
        B, T = state[0].shape[:2]
        yield torch.ones(1 + visit, B, T, dtype=state[0].dtype, device=state[0].device)
