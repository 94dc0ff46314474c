"""Causal attention behind one function, and the backends that compute it.

Every backend takes queries, keys and values (B, T, heads, d) that are not yet rotated and gives the
same numbers to the precision of the dtype; `choose` says which one serves a call.
"""

from math import sqrt

import torch
from torch import Tensor
from torch.nn import functional as F

from depthbench.errors import InputError
from depthbench.model.blockwise import blockwise
from depthbench.model.rotary import Rotary
from residuals import State, unknown
from residuals.norms import at_least_fp32
from residuals.slots import dots, weighted_sum
from residuals.together import softmax_and_total

BACKENDS = ("blockwise", "sdpa", "flash", "plain")
LONGEST_BLOCKWISE = 512


def choose(q_BTHd: Tensor, k_BTGd: Tensor) -> str:
    """The backend for plain causal attention on these tensors."""
    T, H = q_BTHd.shape[1:3]
    eager_cpu = q_BTHd.device.type == "cpu" and not torch.compiler.is_compiling()
    wide = q_BTHd.dtype in (torch.float32, torch.float64)
    if eager_cpu and wide and T <= LONGEST_BLOCKWISE and k_BTGd.shape[2] == H:
        return "blockwise"
    return "sdpa"


def causal(
    q_BTHd: Tensor, k_BTGd: Tensor, v_BTGd: Tensor, rotary: Rotary, backend: str | None = None
) -> Tensor:
    """softmax(rot(q)·rot(k)/√d) v over the positions up to each query; (B, T, H, d)."""
    match backend or choose(q_BTHd, k_BTGd):
        case "blockwise":
            return blockwise(q_BTHd, k_BTGd, v_BTGd, rotary)[0]
        case "sdpa":
            q, k, v = (x.transpose(1, 2) for x in (rotary(q_BTHd), rotary(k_BTGd), v_BTGd))
            gqa = k.shape[1] != q.shape[1]
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)
            return o.transpose(1, 2)
        case "flash":
            from flash_attn import flash_attn_func

            o_BTHd: Tensor = flash_attn_func(rotary(q_BTHd), rotary(k_BTGd), v_BTGd, causal=True)
            return o_BTHd
        case "plain":
            return _plain(rotary(q_BTHd), rotary(k_BTGd), v_BTGd, None)[0]
        case other:
            raise InputError(unknown("attention backend", other, BACKENDS))


def joint(
    q_BTHd: Tensor,
    k_BTGd: Tensor,
    v_BTGd: Tensor,
    rotary: Rotary,
    depth_k: State,
    depth_v: State,
    rotate_depth_query: bool = False,
    backend: str | None = None,
) -> Tensor:
    """Attention under one softmax over the positions and over slots at the query's own position.

    `depth_k` and `depth_v` hold one (B, T, G, 1, d) tensor a slot. Returns (B, T, H, d).
    """
    slots_SBTGR = slot_logits(rotary(q_BTHd) if rotate_depth_query else q_BTHd, depth_k)
    if (backend or choose(q_BTHd, k_BTGd)) == "blockwise":
        # The sum over positions is one slot more, whose logit is log Σ exp over the positions.
        o, total_BTH = blockwise(q_BTHd, k_BTGd, v_BTGd, rotary)
        grouped = slots_SBTGR.shape[-2:]
        logits = torch.cat((total_BTH.unflatten(2, grouped).unsqueeze(0), slots_SBTGR))
        p_SBTGR = softmax_and_total(logits.unsqueeze(0))[0].squeeze(0)
        return weighted_sum(p_SBTGR, (o.unflatten(2, grouped), *depth_v)).flatten(2, 3)
    return joint_plain(rotary(q_BTHd), rotary(k_BTGd), v_BTGd, slots_SBTGR, depth_v)


def slot_logits(q_BTHd: Tensor, depth_k: State) -> Tensor:
    """⟨q, k⟩/√d of every slot at the query's own position: (S, B, T, G, H/G)."""
    d = q_BTHd.shape[-1]
    return dots((q_BTHd / sqrt(d)).unflatten(2, (depth_k[0].shape[2], -1)), depth_k)


def joint_plain(
    q_BTHd: Tensor, k_BUGd: Tensor, v_BUGd: Tensor, slots_SBTGR: Tensor, depth_v: State
) -> Tensor:
    """`joint` written out, of rotated q and k: the queries are the last T of the U positions."""
    grouped = slots_SBTGR.shape[-2:]
    slots_BHTS = slots_SBTGR.permute(1, 3, 4, 2, 0).flatten(1, 2)
    o, p_BHTS = _plain(q_BTHd, k_BUGd, v_BUGd, slots_BHTS)
    p_SBTGR = p_BHTS.unflatten(1, grouped).permute(4, 0, 3, 1, 2).contiguous()
    return o + weighted_sum(p_SBTGR, depth_v).flatten(2, 3)


def _plain(
    q_BTHd: Tensor, k_BUGd: Tensor, v_BUGd: Tensor, slots_BHTS: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Rotated q and k; the whole (B, H, T, U + S) matrix of probabilities, traced by autograd."""
    T, H, d = q_BTHd.shape[1:]
    U = k_BUGd.shape[1]
    k, v = (x.repeat_interleave(H // x.shape[2], 2).transpose(1, 2) for x in (k_BUGd, v_BUGd))
    logits = q_BTHd.transpose(1, 2) @ k.transpose(2, 3) / sqrt(d)
    future = torch.ones(T, U, dtype=torch.bool, device=q_BTHd.device).triu_(1 + U - T)
    logits = logits.masked_fill(future, float("-inf"))
    if slots_BHTS is not None:
        logits = torch.cat((at_least_fp32(logits), at_least_fp32(slots_BHTS)), -1)
    p = torch.softmax(at_least_fp32(logits), -1)
    return (p[..., :U].to(v.dtype) @ v).transpose(1, 2), p[..., U:].to(v.dtype)
