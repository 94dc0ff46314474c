"""The equations of designs with several residual streams, with loops over the streams."""

from collections.abc import Callable
from itertools import permutations

import torch
from torch import Tensor

from tests.residuals.naive import Run, Segment, log_sinkhorn, rms, sublayer

Coefficients = Callable[[Segment, int, list[Tensor]], tuple[Tensor, Tensor, Tensor]]
"""Weights (B, T, s) of the input, (B, T, t, s) of carried streams, (B, T, t) of the output."""


def streams(coefficients: Coefficients, mean: bool) -> Run:
    def run(s: Segment, x: Tensor) -> Tensor:
        m = s.design.streams
        H = [x for _ in range(m)]
        for _, k in s.visits():
            a, A, beta = coefficients(s, k, H)
            mixed = sum(a[..., i, None] * H[i] for i in range(m))
            y = sublayer(s, k, s.normed(k, mixed))
            H = [
                sum(A[..., t, i, None] * H[i] for i in range(m)) + beta[..., t, None] * y
                for t in range(m)
            ]
        return sum(H) / (m if mean else 1)

    return run


def _hc(s: Segment, k: int, H: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """`a = a₀ + s_a·tanh(H̄ w_a)` and so on; A₀ has entry (s, t) for stream s in t."""
    routing = s.design.routing[k]
    found: list[list[Tensor]] = [[] for _ in routing.static]
    for i, stream in enumerate(H):
        normed = rms(stream, s.eps)
        for row, rows in enumerate(found):
            product = normed @ routing.dynamic[row]
            squashed = torch.tanh(product) if s.design.tanh else product
            scale = routing.scales[1 if row == len(found) - 1 else 0]
            rows.append(routing.static[row, i] + scale * squashed)
    a, *A, beta = (torch.stack(row, -1) for row in found)
    return a, torch.stack(A, -2), beta


def convex(logits_BTP: Tensor, m: int) -> Tensor:
    """`Σ_r softmax_r · P_r` (…, t, s) over the permutations; P_r moves stream π_r(t) into t."""
    weights = torch.softmax(logits_BTP, -1)
    mixing = torch.zeros(*weights.shape[:-1], m, m, dtype=weights.dtype)
    for r, order in enumerate(permutations(range(m))):
        P = torch.zeros(m, m, dtype=weights.dtype)
        for t, i in enumerate(order):
            P[t, i] = 1
        mixing = mixing + weights[..., r, None, None] * P
    return mixing


def _constrained(mixing: Callable[[Tensor, int], Tensor]) -> Coefficients:
    def coefficients(s: Segment, k: int, H: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        routing, m = s.design.routing[k], len(H)
        r = rms(torch.cat(H, -1), s.eps)
        parts = []
        for g, rows in enumerate((slice(0, m), slice(m, 2 * m), slice(2 * m, None))):
            parts.append(routing.gains[g] * (r @ routing.phi[rows].T) + routing.bias[rows])
        return torch.sigmoid(parts[0]), mixing(parts[2], m), 2 * torch.sigmoid(parts[1])

    return coefficients


def _sinkhorn(logits_BTR: Tensor, m: int) -> Tensor:
    return log_sinkhorn(logits_BTR.unflatten(-1, (m, m)))


def _identity(logits_BTR: Tensor, m: int) -> Tensor:
    return torch.eye(m, dtype=logits_BTR.dtype).expand(*logits_BTR.shape[:-1], m, m)


hyper_connections = streams(_hc, mean=False)
manifold_hyper_connections = streams(_constrained(_sinkhorn), mean=True)
identity_hyper_connections = streams(_constrained(_identity), mean=True)
mhc_lite = streams(_constrained(convex), mean=True)
