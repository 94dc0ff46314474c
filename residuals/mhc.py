"""mHC, manifold-constrained Hyper-Connections (arXiv 2512.24880, equations 5–9)."""

from typing import cast

import torch
from torch import Tensor, nn

from residuals.contract import RoutingFlops, Stack, State
from residuals.errors import DesignError
from residuals.parameters import (
    BASE_STD,
    ROUTING_DYNAMIC,
    ROUTING_STATIC,
    Declared,
    constant,
    exactly,
    truncated_normal,
)
from residuals.products import normed_product_through
from residuals.registry import register
from residuals.sinkhorn import sinkhorn
from residuals.streams import Streams

GAP = 8.0
ITERATIONS = 20


class _Routing(Declared):
    """Rows of `phi` and `bias`: m for H_pre, m for H_post, m² for H_res in row-major order."""

    def __init__(self, stack: Stack, m: int, first: int, flat: bool) -> None:
        super().__init__()
        num_rows = m * m + 2 * m
        pre = torch.full((m,), -GAP, device="cpu")
        pre[first] = GAP
        res = GAP * (torch.eye(m, device="cpu") - 1)
        biases = torch.cat((pre, torch.zeros(m, device="cpu"), res.flatten()))
        phi = truncated_normal(BASE_STD) if flat else constant(0.0)
        self.declare("phi", (num_rows, m * stack.d_model), ROUTING_DYNAMIC, phi)
        self.declare("gains", (3,), ROUTING_STATIC, constant(0.01))
        bias = constant(0.0) if flat else exactly(biases)
        self.declare("bias", (num_rows,), ROUTING_STATIC, bias)
        self.phi: Tensor
        self.gains: Tensor
        self.bias: Tensor


@register
class MHC(Streams):
    """`x = H_pre H`, `H ← H_res H + H_postᵀ F(N(x))` with H_res doubly stochastic.

    One RMS over all m·d values of the state (B, T, m, D), no gain; three groups of logits
    `g·(φ r) + b`; `H_pre = σ`, `H_post = 2σ`, `H_res = Sinkhorn(exp)` with 20 iterations, columns
    first and rows last. φ starts at zero and the biases near Pre-LN: H_pre at ±8 with + at stream
    k mod m, H_post at 1, H_res 8 apart from the identity. The read-out is the mean of the streams.
    `init = "flat"` starts all biases at zero and φ random, without which the streams never differ.
    `residual_mixing = "identity"` is a control.

    In a loop a sublayer has the same weights at every visit, for coefficients that follow the
    streams; k mod m is the sublayer's number in its segment. `whole`: the streams go on from round
    to round and are averaged once. Prelude–core–coda: each segment, and each loop of the core,
    starts with m copies of what it is given and ends with their mean.
    """

    name = "mhc"
    title = "mHC"
    version = 1
    paper = "2512.24880"

    def __init__(
        self,
        stack: Stack,
        *,
        streams: int = 4,
        init: str = "gap-8",
        residual_mixing: str = "sinkhorn",
    ) -> None:
        if init not in ("gap-8", "flat"):
            raise DesignError(f"init = {init!r} of design 'mhc': choose 'gap-8' or 'flat'")
        if residual_mixing not in ("sinkhorn", "identity"):
            raise DesignError(
                f"residual_mixing = {residual_mixing!r} of design 'mhc': "
                "choose 'sinkhorn' or 'identity'"
            )
        super().__init__(stack, streams)
        self.identity = residual_mixing == "identity"
        self.routing = nn.ModuleList(
            _Routing(stack, streams, k % streams, init == "flat")
            for k in range(stack.num_sublayers)
        )

    def route(self, k: int, H_BTMD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m, dtype = self.streams, H_BTMD.dtype
        routing = cast(_Routing, self.routing[k])
        sizes = (m, m, m * m)
        inputs = (routing.phi.to(dtype), H_BTMD.flatten(2), self.stack.norm_eps)
        products_RBT, flat_BTC = normed_product_through(*inputs)
        gains = zip(routing.gains.to(dtype).split(1), sizes, strict=True)
        gain_R = torch.cat([gain.expand(size) for gain, size in gains])
        bias_R = routing.bias.to(dtype)
        logits_RBT = torch.addcmul(bias_R[:, None, None], gain_R[:, None, None], products_RBT)
        pre_MBT, post_MBT, res_RBT = logits_RBT.split(sizes)
        if self.identity:
            eye_MM11 = torch.eye(m, dtype=dtype, device=H_BTMD.device)[:, :, None, None]
            res_MMBT = eye_MM11.expand(-1, -1, *H_BTMD.shape[:2])
        else:
            res_MMBT = sinkhorn(res_RBT.unflatten(0, (m, m)), ITERATIONS)
        mix_RMBT = torch.cat((pre_MBT.sigmoid().unsqueeze(0), res_MMBT))
        # Streams last in memory, or the batched product falls back to one matrix at a time.
        mix_RBTM = mix_RMBT.movedim(1, -1).contiguous()
        return mix_RBTM, 2 * post_MBT.sigmoid().movedim(0, -1), flat_BTC.view(H_BTMD.shape)

    def finish(self, state: State) -> Tensor:
        return state[0].mean(-2)

    def num_extra_params(self) -> int:
        m, d = self.streams, self.stack.d_model
        return self.stack.num_sublayers * ((m * d + 1) * (m * m + 2 * m) + 3)

    def routing_flops(self) -> RoutingFlops:
        m, d = self.streams, self.stack.d_model
        product, mixing = self.mixing_flops()
        product += 2 * m * d * (m * m + 2 * m)
        if not self.identity:
            mixing += 4 * ITERATIONS * m * m
        return RoutingFlops(self.stack.num_visits * product, self.stack.num_visits * mixing)
