"""mHC, manifold-constrained Hyper-Connections (arXiv 2512.24880, equations 5–9)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from residuals.contract import RoutingFlops, Stack, State
from residuals.errors import DesignError
from residuals.parameters import (
    BASE_STD,
    ROUTING_DYNAMIC,
    ROUTING_STATIC,
    Declared,
    Init,
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


class Gates(Declared):
    """Logits `g·(φ r) + b`, r the state under one RMS, in groups of `sizes`, each with its gain."""

    def __init__(self, stack: Stack, sizes: Sequence[int], bias: Init, phi: Init) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.norm_eps = stack.norm_eps
        num_rows, width = sum(sizes), sizes[0] * stack.d_model
        self.declare("phi", (num_rows, width), ROUTING_DYNAMIC, phi)
        self.declare("gains", (len(sizes),), ROUTING_STATIC, constant(0.01))
        self.declare("bias", (num_rows,), ROUTING_STATIC, bias)
        self.phi: Tensor
        self.gains: Tensor
        self.bias: Tensor

    def forward(self, H_BTMD: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Logits (size, B, T) of every group, and the state (B, T, M·D) to go on with."""
        dtype = H_BTMD.dtype
        inputs = (self.phi.to(dtype), H_BTMD.flatten(2), self.norm_eps)
        products_RBT, flat_BTC = normed_product_through(*inputs)
        gains = zip(self.gains.to(dtype).split(1), self.sizes, strict=True)
        gain_R = torch.cat([gain.expand(size) for gain, size in gains])
        bias_R = self.bias.to(dtype)
        logits_RBT = torch.addcmul(bias_R[:, None, None], gain_R[:, None, None], products_RBT)
        return logits_RBT.split(self.sizes), flat_BTC


class Constrained(Streams):
    """Streams in and out through `H_pre = σ` and `H_post = 2σ`; the read-out is their mean."""

    def parts(self, pre_MBT: Tensor, post_MBT: Tensor, res_MMBT: Tensor) -> tuple[Tensor, Tensor]:
        """Mixing (1 + M, B, T, M), what is read first, and output weights (B, T, M)."""
        mix_RMBT = torch.cat((pre_MBT.sigmoid().unsqueeze(0), res_MMBT))
        # Streams last in memory, or the batched product falls back to one matrix at a time.
        return mix_RMBT.movedim(1, -1).contiguous(), 2 * post_MBT.sigmoid().movedim(0, -1)

    def finish(self, state: State) -> Tensor:
        return state[0].mean(-2)


def _gates(stack: Stack, m: int, first: int, flat: bool) -> Gates:
    """m² rows for H_res, row by row."""
    sizes = (m, m, m * m)
    if flat:
        return Gates(stack, sizes, constant(0.0), truncated_normal(BASE_STD))
    pre = torch.full((m,), -GAP, device="cpu")
    pre[first] = GAP
    res = GAP * (torch.eye(m, device="cpu") - 1)
    bias = torch.cat((pre, torch.zeros(m, device="cpu"), res.flatten()))
    return Gates(stack, sizes, exactly(bias), constant(0.0))


@register
class MHC(Constrained):
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
            _gates(stack, streams, k % streams, init == "flat") for k in range(stack.num_sublayers)
        )

    def route(self, k: int, H_BTMD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m = self.streams
        (pre_MBT, post_MBT, res_RBT), flat_BTC = self.routing[k](H_BTMD)
        if self.identity:
            eye_MM11 = torch.eye(m, dtype=H_BTMD.dtype, device=H_BTMD.device)[:, :, None, None]
            res_MMBT = eye_MM11.expand(-1, -1, *H_BTMD.shape[:2])
        else:
            res_MMBT = sinkhorn(res_RBT.unflatten(0, (m, m)), ITERATIONS)
        mix_RBTM, post_BTM = self.parts(pre_MBT, post_MBT, res_MMBT)
        return mix_RBTM, post_BTM, flat_BTC.view(H_BTMD.shape)

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
