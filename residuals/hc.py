"""Hyper-Connections, dynamic (arXiv 2409.19606, equations 2 and 10–13)."""

from math import sqrt
from typing import cast

import torch
from torch import Tensor, nn

from residuals.contract import RoutingFlops, Stack, State
from residuals.parameters import ROUTING_DYNAMIC, ROUTING_STATIC, Declared, constant, exactly
from residuals.products import normed_product_through
from residuals.registry import register
from residuals.streams import Streams


class _Routing(Declared):
    """Rows of `static` and `dynamic`: input weights a, the columns of A, output weights β."""

    def __init__(self, stack: Stack, m: int, first: int, static: bool) -> None:
        super().__init__()
        a = nn.functional.one_hot(torch.tensor([first], device="cpu"), m)
        initial = torch.cat((a, torch.eye(m, device="cpu"), torch.ones(1, m, device="cpu")))
        self.declare("static", (m + 2, m), ROUTING_STATIC, exactly(initial))
        if not static:
            self.declare("dynamic", (m + 2, stack.d_model), ROUTING_DYNAMIC, constant(0.0))
            self.declare("scales", (2,), ROUTING_STATIC, constant(0.01))
        self.static: Tensor
        self.dynamic: Tensor
        self.scales: Tensor


@register
class HC(Streams):
    """`x = Σ_s a_s H_s`, `H_t ← Σ_s A_{s,t} H_s + β_t·F(N(x))` with coefficients from the streams.

    `a = a₀ + s_a·tanh(H̄ w_a)`, A likewise with s_a, `β = β₀ + s_β·tanh(H̄ w_β)`; H̄ are the streams
    (B, T, m, D), each divided by its RMS. Dynamic weights start at zero, s at 0.01, a₀ at the
    one-hot k mod m, A₀ at the identity, β₀ at one: Pre-LN. The read-out is the sum of the streams.
    Options: `static` leaves out the dynamic part, `tanh = False` its squashing; `rescale_output`
    divides the initial attention-output and MLP-down weights by √m.

    In a loop a sublayer has the same weights at every visit, for coefficients that follow the
    streams; k mod m is the sublayer's number in its segment. `whole`: the streams go on from round
    to round and are summed once. Prelude–core–coda: each segment, and each loop of the core, starts
    with m copies of what it is given and ends with their sum.
    """

    name = "hc"
    title = "HC"
    version = 1
    paper = "2409.19606"

    def __init__(
        self,
        stack: Stack,
        *,
        streams: int = 4,
        static: bool = False,
        tanh: bool = True,
        rescale_output: bool = False,
    ) -> None:
        super().__init__(stack, streams)
        self.is_static = static
        self.tanh = tanh
        self.rescale_output = rescale_output
        self.routing = nn.ModuleList(
            _Routing(stack, streams, k % streams, static) for k in range(stack.num_sublayers)
        )

    def route(self, k: int, H_BTMD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        routing = cast(_Routing, self.routing[k])
        all_RBTM = routing.static.to(H_BTMD.dtype)[:, None, None]
        if self.is_static:
            all_RBTM = all_RBTM.expand(-1, *H_BTMD.shape[:2], -1)
        else:
            dynamic_RD = routing.dynamic.to(H_BTMD.dtype)
            inputs = (dynamic_RD, H_BTMD, self.stack.norm_eps)
            logits_RBTM, H_BTMD = normed_product_through(*inputs)
            scales = routing.scales.to(H_BTMD.dtype)
            scale_R = torch.cat((scales[:1].expand(self.streams + 1), scales[1:]))
            squashed = logits_RBTM.tanh() if self.tanh else logits_RBTM
            all_RBTM = torch.addcmul(all_RBTM, scale_R[:, None, None, None], squashed)
        mix_RBTM, write_1BTM = all_RBTM.split((self.streams + 1, 1))
        return mix_RBTM, write_1BTM.squeeze(0), H_BTMD

    def finish(self, state: State) -> Tensor:
        return state[0].sum(-2)

    def init_gain(self, role: str, fan_in: int, fan_out: int) -> float:
        return 1 / sqrt(self.streams) if self.rescale_output and role in ("o", "down") else 1.0

    def num_extra_params(self) -> int:
        m, d = self.streams, self.stack.d_model
        dynamic = 0 if self.is_static else d * (m + 2) + 2
        return self.stack.num_sublayers * (m * (m + 2) + dynamic)

    def routing_flops(self) -> RoutingFlops:
        m, d = self.streams, self.stack.d_model
        product, mixing = self.mixing_flops()
        if not self.is_static:
            product += 2 * m * d * (m + 2)
        return RoutingFlops(self.stack.num_visits * product, self.stack.num_visits * mixing)
