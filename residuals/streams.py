"""What designs with several residual streams share: the state (B, T, m, D) and its sums.

Coefficients are computed with the tokens on the last axes, so that work over the few streams runs
along contiguous memory.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from residuals.contract import Design, Stack, State
from residuals.errors import DesignError
from residuals.norms import at_least_fp32, without_autocast


class Streams(Design):
    """m residual streams: a sublayer reads a weighted sum and adds its output to every stream."""

    family = "streams"

    def __init__(self, stack: Stack, streams: int) -> None:
        if streams < 1:
            raise DesignError(f"streams = {streams} of design {self.name!r}: give at least 1")
        super().__init__(stack)
        self.streams = streams
        self.norms = stack.norms()

    def coefficients(self, k: int, H_BTMD: Tensor) -> tuple[Tensor, Tensor]:
        """Of sublayer k: `mix` (1 + m, B, T, m) and `write` (B, T, m).

        Row 0 of `mix` weighs the streams in the sublayer's input, row 1 + t in the carried stream
        t; `write` weighs the sublayer's output in each stream.
        """
        return self.route(k, H_BTMD)[:2]

    def route(self, k: int, H_BTMD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The coefficients, and H for `mix` to be applied to."""
        raise NotImplementedError

    def start(self, x_BTD: Tensor) -> State:
        return (at_least_fp32(x_BTD).unsqueeze(-2).repeat_interleave(self.streams, -2),)

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        mix, write_BTM, H_BTMD = self.route(k, state[0])
        with without_autocast(mix):
            mixed_BTRD = mix.movedim(0, -2) @ H_BTMD
        x_BT1D, carried_BTMD = mixed_BTRD.split((1, self.streams), -2)
        return self.norms[k](x_BT1D.squeeze(-2)), (carried_BTMD, write_BTM)

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        mixed_BTMD, write_BTM = carry
        return (torch.addcmul(mixed_BTMD, write_BTM.unsqueeze(-1), y_BTD.unsqueeze(-2)),)

    def depth_state(self, visit: int, state: State) -> Tensor:
        return state[0].flatten(2)

    def streams_of(self, state: State) -> Tensor:
        return state[0]

    def mixing(self, k: int, visit: int, state: State) -> Tensor:
        return self.coefficients(k, state[0])[0][1:].movedim(0, -2)

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor]:
        B, T, m, _ = states[0][0].shape
        carried_SBTM = states[0][0].new_ones(1, B, T, m)
        for visit, state in enumerate(states[:-1]):
            mix_RBTM, write_BTM = self.coefficients(visit % self.stack.num_sublayers, state[0])
            yield (carried_SBTM * mix_RBTM[0]).sum(-1)
            carried_SBTM = torch.einsum("sbtm,rbtm->sbtr", carried_SBTM, mix_RBTM[1:])
            carried_SBTM = torch.cat((carried_SBTM, write_BTM.unsqueeze(0)))
        # The read-out is linear in the streams: it weighs their shares alike.
        yield self.finish((carried_SBTM.unsqueeze(-1),)).squeeze(-1)

    def mixing_flops(self) -> tuple[int, int]:
        """Of one sublayer and token: the product `mix·H`, and the output's sum into the streams."""
        m, d = self.streams, self.stack.d_model
        return 2 * (m + 1) * m * d, 2 * m * d
