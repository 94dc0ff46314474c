"""Causal attention by FlexAttention, with log Σ exp of its logits and the gradients of both.

Compiled it is one kernel forth and two back, none of which holds a (T, T) matrix: so it runs on a
GPU. On a CPU it runs unfused, and torch allows it no gradients there.
"""

from collections.abc import Callable
from functools import cache, lru_cache, partial

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex

NARROWEST = 16  # of a head, for the fused kernels


def with_total(q_BTHd: Tensor, k_BTGd: Tensor, v_BTGd: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention of rotated q and k (B, T, H, d), and log Σ exp of its logits (B, T, H).

    The logits and their sum are in fp32, or in fp64 where the inputs are.
    """
    q, k, v = (x.transpose(1, 2) for x in (q_BTHd, k_BTGd, v_BTGd))
    compiling = torch.compiler.is_compiling()
    mask = (_causal_mask if compiling else _kept_mask)(q.shape[2], q.device)
    unfused = q.device.type == "cpu" or compiling  # a compiler fuses it with what is around it
    o_BHTd, total_BHT = (_attend if unfused else _fused())(q, k, v, mask)
    return o_BHTd.transpose(1, 2), total_BHT.transpose(1, 2)


def _attend(
    q_BHTd: Tensor, k_BGTd: Tensor, v_BGTd: Tensor, mask: flex.BlockMask
) -> tuple[Tensor, Tensor]:
    gqa = k_BGTd.shape[1] != q_BHTd.shape[1]
    attend = partial(flex.flex_attention, q_BHTd, k_BGTd, v_BGTd, block_mask=mask, enable_gqa=gqa)
    if not hasattr(flex, "AuxRequest"):  # torch 2.8
        o, total = attend(return_lse=True)
        return o, total
    o, found = attend(return_aux=flex.AuxRequest(lse=True))
    return o, found.lse


@cache
def _fused() -> Callable[..., tuple[Tensor, Tensor]]:
    return torch.compile(_attend)


def _causal_mask(length: int, device: torch.device) -> flex.BlockMask:
    """Which blocks of 128 × 128 are computed, and which of them in part."""
    return flex.create_block_mask(_not_later, None, None, length, length, device)


# Without a compiler a mask is made from a (T, T) matrix of booleans: once for each length.
_kept_mask = lru_cache(maxsize=8)(_causal_mask)


def _not_later(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key
