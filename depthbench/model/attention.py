"""Causal attention behind one function, and the backends that compute it.

Every backend takes queries, keys and values (B, T, heads, d) that are not yet rotated and gives the
same numbers to the precision of the dtype; `choose` says which one serves a call.
"""

from collections.abc import Callable
from functools import cache
from math import sqrt

import torch
from torch import Tensor
from torch.nn import functional as F

from depthbench.errors import InputError
from depthbench.model import flex
from depthbench.model.blockwise import blockwise
from depthbench.model.rotary import Rotary
from residuals import State, unknown
from residuals.norms import at_least_fp32, without_autocast
from residuals.slots import dots, weighted_sum
from residuals.together import softmax_and_total

BACKENDS = ("blockwise", "sdpa", "flash", "flex", "plain")
LONGEST_BLOCKWISE = 512


def choose(q_BTHd: Tensor, k_BTGd: Tensor, slots: bool = False) -> str:
    """The backend for attention on these tensors, to positions alone or also to slots."""
    (T, H, d), device = q_BTHd.shape[1:], q_BTHd.device.type
    compiling = torch.compiler.is_compiling()
    # It keeps its exponentials, which pays while they fit into a CPU's cache.
    eager_cpu = device == "cpu" and not compiling
    if eager_cpu and _wide(q_BTHd) and T <= LONGEST_BLOCKWISE and k_BTGd.shape[2] == H:
        return "blockwise"
    # One softmax with slots needs log Σ exp over the positions and its gradient. SDPA gives no such
    # sum, flash-attn no gradient of it, and FlexAttention goes back on CUDA alone.
    if slots:
        return "flex" if device == "cuda" and d >= flex.NARROWEST else "plain"
    # The compiler knows what SDPA does; older versions of flash-attn would break its graph.
    narrow_cuda = device == "cuda" and not _wide(q_BTHd)
    if narrow_cuda and not compiling and flash_attention(device) is not None:
        return "flash"
    return "sdpa"


@cache
def flash_attention(device: str) -> Callable[..., Tensor] | None:
    """flash-attn's function if it attends on the device, else None.

    A package that was built for another torch, CUDA or GPU can fail in any way, when it is imported
    or when it is first called. `depthbench doctor` says how; training goes on without it.
    """
    try:
        from flash_attn import flash_attn_func

        x = torch.ones(1, 1, 1, 16, dtype=torch.bfloat16, device=device)
        flash_attn_func(x, x, x, causal=True)
    except Exception:
        return None
    return flash_attn_func  # type: ignore[no-any-return]


def causal(
    q_BTHd: Tensor, k_BTGd: Tensor, v_BTGd: Tensor, rotary: Rotary, backend: str | None = None
) -> Tensor:
    """softmax(rot(q)·rot(k)/√d) v over the positions up to each query; (B, T, H, d)."""
    match backend or choose(q_BTHd, k_BTGd):
        case "blockwise":
            return blockwise(q_BTHd, k_BTGd, v_BTGd, rotary)[0]
        case "sdpa":
            return _sdpa(rotary(q_BTHd), rotary(k_BTGd), v_BTGd)
        case "flash":
            from flash_attn import flash_attn_func

            same_bits = torch.are_deterministic_algorithms_enabled()
            qkv = (rotary(q_BTHd), rotary(k_BTGd), v_BTGd)
            o_BTHd: Tensor = flash_attn_func(*qkv, causal=True, deterministic=same_bits)
            return o_BTHd
        case "flex":
            return flex.with_total(rotary(q_BTHd), rotary(k_BTGd), v_BTGd)[0]
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
    match backend or choose(q_BTHd, k_BTGd, slots=True):
        case "blockwise":
            o, total_BTH = blockwise(q_BTHd, k_BTGd, v_BTGd, rotary)
        case "flex":
            o, total_BTH = flex.with_total(rotary(q_BTHd), rotary(k_BTGd), v_BTGd)
        case _:
            return joint_plain(rotary(q_BTHd), rotary(k_BTGd), v_BTGd, slots_SBTGR, depth_v)
    # The sum over positions is one slot more, whose logit is log Σ exp over the positions.
    grouped = slots_SBTGR.shape[-2:]
    logits = torch.cat((total_BTH.unflatten(2, grouped).unsqueeze(0), slots_SBTGR))
    p_SBTGR = softmax_and_total(logits.unsqueeze(0))[0].squeeze(0)
    joined = weighted_sum(p_SBTGR, (o.unflatten(2, grouped), *depth_v)).flatten(2, 3)
    return joined.to(v_BTGd.dtype)


def slot_logits(q_BTHd: Tensor, depth_k: State) -> Tensor:
    """⟨q, k⟩/√d of every slot at the query's own position, in fp32 or wider: (S, B, T, G, H/G)."""
    q = at_least_fp32(q_BTHd) / sqrt(q_BTHd.shape[-1])
    with without_autocast(q):
        return dots(q.unflatten(2, (depth_k[0].shape[2], -1)), depth_k)


def joint_plain(
    q_BTHd: Tensor, k_BUGd: Tensor, v_BUGd: Tensor, slots_SBTGR: Tensor, depth_v: State
) -> Tensor:
    """`joint` written out, of rotated q and k: the queries are the last T of the U positions."""
    grouped = slots_SBTGR.shape[-2:]
    slots_BHTS = slots_SBTGR.permute(1, 3, 4, 2, 0).flatten(1, 2)
    o, p_BHTS = _plain(q_BTHd, k_BUGd, v_BUGd, slots_BHTS)
    p_SBTGR = p_BHTS.unflatten(1, grouped).permute(4, 0, 3, 1, 2).contiguous()
    return o + weighted_sum(p_SBTGR, depth_v).flatten(2, 3)


def _sdpa(q_BTHd: Tensor, k_BTGd: Tensor, v_BTGd: Tensor) -> Tensor:
    """torch's fused attention of rotated q and k."""
    q, k, v = (x.transpose(1, 2) for x in (q_BTHd, k_BTGd, v_BTGd))
    group = q.shape[1] // k.shape[1]
    if group > 1 and _wide(q):
        # No fused kernel knows both groups and fp32, and unfused there is a (T, T) matrix.
        k, v, group = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), 1
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=group > 1)
    return o.transpose(1, 2)


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


def _wide(x: Tensor) -> bool:
    return x.dtype in (torch.float32, torch.float64)
