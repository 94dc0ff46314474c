"""The designs once more, straight from their equations, traced by autograd.

Every function takes a built decoder for its weights alone and returns the logits.
"""

from math import sqrt

import torch
from torch import Tensor

from depthbench.model.decoder import Decoder

THETA = 10_000.0


def rms(x: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def layer_norm(x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + eps)


def rotate(x_BTHd: Tensor, first: int = 0) -> Tensor:
    """Complex multiplication of the pairs (i, i + d/2) by exp(i·position·θ^(-2i/d))."""
    T, d = x_BTHd.shape[1], x_BTHd.shape[-1]
    position = torch.arange(first, first + T, dtype=torch.float64)
    frequency = torch.tensor([THETA ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    angle = position[:, None, None] * frequency
    pairs = torch.complex(x_BTHd[..., : d // 2], x_BTHd[..., d // 2 :])
    turned = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), -1)


def joint_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slots: list[tuple[Tensor, Tensor]],
    rotate_depth_query: bool = False,
    first: int = 0,
) -> Tensor:
    """One softmax over [positions, slots] for every head and query, written out."""
    B, T, H, d = q.shape
    q_rotated, k_rotated = rotate(q, first), rotate(k, first)
    out = torch.zeros_like(q)
    for h in range(H):
        g = h * k.shape[2] // H
        for t in range(T):
            own = (q_rotated[:, t, None, h] * k_rotated[:, : t + 1, g]).sum(-1)
            depth_q = (q_rotated if rotate_depth_query else q)[:, t, h]
            depth = [(depth_q * key[:, t, g]).sum(-1) for key, _ in slots]
            p = torch.softmax(torch.cat((own, *(x[:, None] for x in depth)), 1) / sqrt(d), 1)
            values = torch.cat((v[:, : t + 1, g], *(val[:, t, None, g] for _, val in slots)), 1)
            out = out.index_put(
                (torch.arange(B), torch.tensor(t), torch.tensor(h)), (p[..., None] * values).sum(1)
            )
    return out


def qkv(model: Decoder, k: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    matrices = model.blocks[k // 2].attention.qkv.matrices()
    d = model.shape.head_dim
    q, key, v = ((x @ matrices[name].T).unflatten(-1, (-1, d)) for name in ("q", "k", "v"))
    return q, key, v


def sublayer(model: Decoder, k: int, x: Tensor) -> Tensor:
    """F of sublayer k: causal attention or SwiGLU, without any norm."""
    block = model.blocks[k // 2]
    if k % 2:
        matrices = block.mlp.gate_up.matrices()
        gate, up = x @ matrices["gate"].T, x @ matrices["up"].T
        return (gate / (1 + torch.exp(-gate)) * up) @ block.mlp.down.weight.T
    return joint_attention(*qkv(model, k, x), []).flatten(2) @ block.attention.out.weight.T


def _head(model: Decoder, x: Tensor) -> Tensor:
    eps = model.design.stack.norm_eps
    return (rms(x, eps) * model.final_norm.gain) @ model.head.weight.T


def norm_design(
    model: Decoder,
    tokens: Tensor,
    *,
    alpha: list[float] | None = None,
    inner: bool = True,
    divide: list[float] | None = None,
    branch_norm: bool = False,
    outer: list[int | None] | None = None,
    centred: bool = False,
    embedding_norm: bool = False,
) -> Tensor:
    """`x ← N_out(α·x + N_branch(F(N_in(x)/divide)))`.

    α, the divisor and the number of the outer norm, or None, are given for every sublayer; gains
    are looked up in the design.
    """
    design, eps = model.design, model.design.stack.norm_eps
    gains = [norm.gain for norm in design.norms] if hasattr(design, "norms") else []
    output = [norm.gain for norm in design.output_norms] if hasattr(design, "output_norms") else []
    x = model.embedding.weight[tokens]
    if embedding_norm:
        x = rms(x, eps) * design.embedding_norm.gain
    for k in range(2 * model.shape.layers):
        h = rms(x, eps) * gains[k] if inner else x
        y = sublayer(model, k, h / (divide[k] if divide else 1.0))
        if branch_norm:
            y = rms(y, eps) * output[k]
        x = (alpha[k] if alpha else 1.0) * x + y
        if outer and outer[k] is not None:
            gain = (output or gains)[outer[k]]
            x = (layer_norm(x, eps) if centred else rms(x, eps)) * gain
    return _head(model, x)


def hyper_connections(model: Decoder, tokens: Tensor) -> Tensor:
    """HC with loops over streams: `a = a₀ + s_a·tanh(H̄ w_a)` and so on."""
    design, eps = model.design, model.design.stack.norm_eps
    m = design.streams
    streams = [model.embedding.weight[tokens] for _ in range(m)]
    for k in range(2 * model.shape.layers):
        routing = design.routing[k]
        a0, A0, beta0 = routing.static[0], routing.static[1:-1].T, routing.static[-1]
        a: list[Tensor] = []
        A: list[list[Tensor]] = []
        beta: list[Tensor] = []
        for s in range(m):
            H = rms(streams[s], eps)

            def squash(row: int, H: Tensor = H, dynamic: Tensor = routing.dynamic) -> Tensor:
                return torch.tanh(H @ dynamic[row]) if design.tanh else H @ dynamic[row]

            a.append(a0[s] + routing.scales[0] * squash(0))
            A.append([A0[s, t] + routing.scales[0] * squash(1 + t) for t in range(m)])
            beta.append(beta0[s] + routing.scales[1] * squash(1 + m))
        x = sum(a[s][..., None] * streams[s] for s in range(m))
        y = sublayer(model, k, rms(x, eps) * design.norms[k].gain)
        streams = [
            sum(A[s][t][..., None] * streams[s] for s in range(m)) + beta[t][..., None] * y
            for t in range(m)
        ]
    return _head(model, sum(streams))


def log_sinkhorn(logits_BTMM: Tensor, iterations: int = 20) -> Tensor:
    """Of (…, row, column): columns first, rows last, in log space under autograd."""
    log_p = logits_BTMM
    for _ in range(iterations):
        log_p = log_p - torch.logsumexp(log_p, -2, keepdim=True)
        log_p = log_p - torch.logsumexp(log_p, -1, keepdim=True)
    return log_p.exp()


def manifold_hyper_connections(
    model: Decoder, tokens: Tensor, identity_mixing: bool = False
) -> Tensor:
    design, eps = model.design, model.design.stack.norm_eps
    m = design.streams
    streams = [model.embedding.weight[tokens] for _ in range(m)]
    for k in range(2 * model.shape.layers):
        routing = design.routing[k]
        r = rms(torch.cat(streams, -1), eps)
        parts = []
        for g, rows in enumerate((slice(0, m), slice(m, 2 * m), slice(2 * m, None))):
            parts.append(routing.gains[g] * (r @ routing.phi[rows].T) + routing.bias[rows])
        pre, post = torch.sigmoid(parts[0]), 2 * torch.sigmoid(parts[1])
        res = log_sinkhorn(parts[2].unflatten(-1, (m, m)))
        x = sum(pre[..., s, None] * streams[s] for s in range(m))
        y = sublayer(model, k, rms(x, eps) * design.norms[k].gain)
        streams = [
            (
                streams[t]
                if identity_mixing
                else sum(res[..., t, s, None] * streams[s] for s in range(m))
            )
            + post[..., t, None] * y
            for t in range(m)
        ]
    return _head(model, sum(streams) / m)


def attention_residuals(model: Decoder, tokens: Tensor, group: int) -> Tensor:
    """All sources stacked again in every consumer; sums of groups recomputed from the outputs."""
    design, eps = model.design, model.design.stack.norm_eps
    embedding = model.embedding.weight[tokens]
    outputs: list[Tensor] = []

    def mix(consumer: int) -> Tensor:
        groups = [outputs[i : i + group] for i in range(0, len(outputs), group)]
        sources = torch.stack([embedding, *(torch.stack(g).sum(0) for g in groups)])
        if len(sources) == 1:
            return embedding
        keys = rms(sources, eps) * design.key_gains[consumer]
        weights = torch.softmax((keys * design.queries[consumer]).sum(-1), 0)
        return (weights[..., None] * sources).sum(0)

    last = 2 * model.shape.layers
    for k in range(last):
        x = mix(k - 1)
        outputs.append(sublayer(model, k, rms(x, eps) * design.norms[k].gain))
    return _head(model, mix(last - 1))


def mixture_of_depths(
    model: Decoder, tokens: Tensor, rotate_depth_query: bool = False, post_norm: bool = False
) -> Tensor:
    design, eps = model.design, model.design.stack.norm_eps
    x = model.embedding.weight[tokens]
    slots: list[tuple[Tensor, Tensor]] = []
    sizes = (2, model.shape.kv_heads, model.shape.head_dim)
    for k in range(2 * model.shape.layers):
        h = x if post_norm else rms(x, eps) * design.norms[k].gain
        if k % 2:
            y = sublayer(model, k, h)
            if k < 2 * model.shape.layers - 1:
                written = (h @ design.maps[k // 2].weight.T).unflatten(-1, sizes)
                slots.append((written[:, :, 0], written[:, :, 1]))
        else:
            q, key, v = qkv(model, k, h)
            o = joint_attention(q, key, v, slots, rotate_depth_query)
            y = o.flatten(2) @ model.blocks[k // 2].attention.out.weight.T
            slots.append((key, v))
        x = x + (rms(y, eps) * design.norms[k].gain if post_norm else y)
    return _head(model, x)
