"""mHC-lite (Yang and Gao, arXiv 2601.05732): mHC without Sinkhorn iterations."""

from itertools import permutations
from math import factorial
from typing import cast

import torch
from torch import Tensor, nn

from residuals.contract import RoutingFlops, Stack, State
from residuals.errors import DesignError
from residuals.mhc import GAP
from residuals.norms import without_autocast
from residuals.parameters import ROUTING_DYNAMIC, ROUTING_STATIC, Declared, constant, exactly
from residuals.products import normed_product_through
from residuals.registry import register
from residuals.streams import Streams
from residuals.together import softmax_and_total

MOST_STREAMS = 6  # 720 permutations


class _Routing(Declared):
    """Rows of `phi` and `bias`: m for H_pre, m for H_post, m! for the permutations."""

    def __init__(self, stack: Stack, m: int, first: int) -> None:
        super().__init__()
        bias = torch.full((2 * m + factorial(m),), -GAP, device="cpu")
        bias[first] = GAP
        bias[m : 2 * m + 1] = 0
        size = (len(bias), m * stack.d_model)
        self.declare("phi", size, ROUTING_DYNAMIC, constant(0.0))
        self.declare("gains", (3,), ROUTING_STATIC, constant(0.01))
        self.declare("bias", size[:1], ROUTING_STATIC, exactly(bias))
        self.phi: Tensor
        self.gains: Tensor
        self.bias: Tensor


@register
class MHCLite(Streams):
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
            _Routing(stack, streams, k % streams) for k in range(stack.num_sublayers)
        )

    def route(self, k: int, H_BTMD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m, dtype = self.streams, H_BTMD.dtype
        routing = cast(_Routing, self.routing[k])
        sizes = (m, m, factorial(m))
        inputs = (routing.phi.to(dtype), H_BTMD.flatten(2), self.stack.norm_eps)
        products_RBT, flat_BTC = normed_product_through(*inputs)
        gains = zip(routing.gains.to(dtype).split(1), sizes, strict=True)
        gain_R = torch.cat([gain.expand(size) for gain, size in gains])
        bias_R = routing.bias.to(dtype)
        logits_RBT = torch.addcmul(bias_R[:, None, None], gain_R[:, None, None], products_RBT)
        pre_MBT, post_MBT, res_PBT = logits_RBT.split(sizes)
        weights_PBT = softmax_and_total(res_PBT.unsqueeze(0))[0].squeeze(0)
        with without_autocast(H_BTMD):
            res_QBT = torch.tensordot(self._permutations(weights_PBT), weights_PBT, 1)
        mix_QBT = torch.cat((pre_MBT.sigmoid(), res_QBT))
        # Streams last in memory, or the batched product falls back to one matrix at a time.
        mix_RBTM = mix_QBT.unflatten(0, (1 + m, m)).movedim(1, -1).contiguous()
        return mix_RBTM, 2 * post_MBT.sigmoid().movedim(0, -1), flat_BTC.view(H_BTMD.shape)

    def _permutations(self, like: Tensor) -> Tensor:
        """(m², m!): column r is the r-th permutation matrix, row by row."""
        orders = list(permutations(range(self.streams)))
        eye_MM = torch.eye(self.streams, dtype=like.dtype, device=like.device)
        return eye_MM[torch.tensor(orders, device=like.device)].flatten(1).T

    def finish(self, state: State) -> Tensor:
        return state[0].mean(-2)

    def num_extra_params(self) -> int:
        m, d = self.streams, self.stack.d_model
        return self.stack.num_sublayers * ((m * d + 1) * (2 * m + factorial(m)) + 3)

    def routing_flops(self) -> RoutingFlops:
        m, d = self.streams, self.stack.d_model
        product, mixing = self.mixing_flops()
        product += 2 * m * d * (2 * m + factorial(m)) + 2 * m * m * factorial(m)
        return RoutingFlops(self.stack.num_visits * product, self.stack.num_visits * mixing)
