"""Incremental decoding: keys and values of the positions so far, one pair for each attention visit.

A design mixes across depth only and each token for itself, so this is all that must be remembered.
"""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from depthbench.model.attention import joint_plain, slot_logits
from depthbench.model.rotary import Rotary
from residuals import State


class Cache(Protocol):
    """What a decoder keeps between calls; whoever calls it holds it."""

    @property
    def length(self) -> int:
        """Positions that are in it."""

    def extend(self, visit: int, k_BTGd: Tensor, v_BTGd: Tensor) -> tuple[Tensor, Tensor]:
        """Appends rotated keys and values of the attention at `visit`; returns all, (B, S, G, d).

        `length` grows with the first visit of a pass and is read before it.
        """


@dataclass
class KeyValueCache:
    """Keys and values by visit; a looped stack has one pair for each time a block is visited."""

    pairs: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return next((k.shape[1] for k, _ in self.pairs.values()), 0)

    def extend(self, visit: int, k_BTGd: Tensor, v_BTGd: Tensor) -> tuple[Tensor, Tensor]:
        if visit in self.pairs:
            keys, values = self.pairs[visit]
            k_BTGd, v_BTGd = torch.cat((keys, k_BTGd), 1), torch.cat((values, v_BTGd), 1)
        self.pairs[visit] = k_BTGd, v_BTGd
        return k_BTGd, v_BTGd


@dataclass(frozen=True)
class CachedSequence:
    """What `attend` calls at one visit: the new positions see the cached ones and themselves."""

    rotary: Rotary
    cache: Cache
    visit: int

    def __call__(self, q_BTHd: Tensor, k_BTGd: Tensor, v_BTGd: Tensor) -> Tensor:
        k_BSGd, v_BSGd = self.cache.extend(self.visit, self.rotary(k_BTGd), v_BTGd)
        q, k, v = (x.transpose(1, 2) for x in (self.rotary(q_BTHd), k_BSGd, v_BSGd))
        seen_TS = _seen(q.shape[2], k.shape[2], q.device)
        gqa = k.shape[1] != q.shape[1]
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=seen_TS, enable_gqa=gqa)
        return o.transpose(1, 2)

    def joint(
        self,
        q_BTHd: Tensor,
        k_BTGd: Tensor,
        v_BTGd: Tensor,
        depth_k: State,
        depth_v: State,
        rotate_depth_query: bool = False,
    ) -> Tensor:
        k_BSGd, v_BSGd = self.cache.extend(self.visit, self.rotary(k_BTGd), v_BTGd)
        rotated = self.rotary(q_BTHd)
        slots = slot_logits(rotated if rotate_depth_query else q_BTHd, depth_k)
        return joint_plain(rotated, k_BSGd, v_BSGd, slots, depth_v)


def _seen(num_new: int, num_all: int, device: torch.device) -> Tensor:
    """(T, S): whether new position t, the last T of S, sees position s."""
    seen = torch.ones(num_new, num_all, dtype=torch.bool, device=device)
    return seen.tril_(num_all - num_new)
