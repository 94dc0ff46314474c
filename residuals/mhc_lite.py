"""mHC-lite (Yang and Gao, arXiv 2601.05732): mHC without Sinkhorn iterations."""

from itertools import permutations
from math import factorial

import torch
from torch import Tensor, nn

from residuals.contract import RoutingFlops, Stack
from residuals.errors import DesignError
from residuals.mhc import GAP, Constrained, Gates
from residuals.norms import without_autocast
from residuals.parameters import constant, exactly
from residuals.registry import register
from residuals.together import softmax_and_total

MOST_STREAMS = 6  # 720 permutations


def _gates(stack: Stack, m: int, first: int) -> Gates:
    """m! rows for the permutations, the identity first."""
    bias = torch.full((2 * m + factorial(m),), -GAP, device="cpu")
    bias[first] = GAP
    bias[m : 2 * m + 1] = 0
    return Gates(stack, (m, m, factorial(m)), exactly(bias), constant(0.0))


@register
class MHCLite(Constrained):
    """`x = H_pre H`, `H ← H_res H + H_postᵀ F(N(x))` with H_res = Σ_r softmax(res)_r P_r, exact.

    P_r are the m! permutation matrices, whose convex combinations are all doubly stochastic
    matrices (Birkhoff and von Neumann): rows and columns sum to one without an iteration. The rest
    is mHC's: one RMS over all m·d values of the state (B, T, m, D), no gain; logits `g·(φ r) + b`;
    `H_pre = σ`, `H_post = 2σ`; the read-out is the mean of the streams.

    It starts as mHC does here: φ at zero, H_pre at ±8 with + at stream k mod m, H_post at 1, the
    identity's logit 8 above all others. All streams are then equal, which makes it Pre-LN. Four
    streams have 24 permutations; more than six are refused.

    In a loop a sublayer has the same weights at every visit, for coefficients that follow the
    streams; k mod m is the sublayer's number in its segment. Streams go on through the rounds of
    the `whole` layout. In prelude–core–coda each segment, and each loop of the core, starts with
    copies of what it is given and ends with their mean.
    """

    name = "mhc-lite"
    title = "mHC-lite"
    version = 1
    paper = "2601.05732"

    def __init__(self, stack: Stack, *, streams: int = 4) -> None:
        if streams > MOST_STREAMS:
            raise DesignError(
                f"streams = {streams} of design 'mhc-lite' have {streams}! permutations: give at "
                f"most {MOST_STREAMS}"
            )
        super().__init__(stack, streams)
        self.routing = nn.ModuleList(
            _gates(stack, streams, k % streams) for k in range(stack.num_sublayers)
        )

    def route(self, k: int, H_BTMD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (pre_MBT, post_MBT, res_PBT), flat_BTC = self.routing[k](H_BTMD)
        weights_PBT = softmax_and_total(res_PBT.unsqueeze(0))[0].squeeze(0)
        with without_autocast(H_BTMD):
            res_QBT = torch.tensordot(self._permutations(weights_PBT), weights_PBT, 1)
        res_MMBT = res_QBT.unflatten(0, (self.streams, self.streams))
        mix_RBTM, post_BTM = self.parts(pre_MBT, post_MBT, res_MMBT)
        return mix_RBTM, post_BTM, flat_BTC.view(H_BTMD.shape)

    def _permutations(self, like: Tensor) -> Tensor:
        """(m², m!): column r is the r-th permutation matrix, row by row."""
        orders = list(permutations(range(self.streams)))
        eye_MM = torch.eye(self.streams, dtype=like.dtype, device=like.device)
        return eye_MM[torch.tensor(orders, device=like.device)].flatten(1).T

    def num_extra_params(self) -> int:
        m, d = self.streams, self.stack.d_model
        return self.stack.num_sublayers * ((m * d + 1) * (2 * m + factorial(m)) + 3)

    def routing_flops(self) -> RoutingFlops:
        m, d = self.streams, self.stack.d_model
        product, mixing = self.mixing_flops()
        product += 2 * m * d * (2 * m + factorial(m)) + 2 * m * m * factorial(m)
        return RoutingFlops(self.stack.num_visits * product, self.stack.num_visits * mixing)
