"""The decoder that is held fixed: embedding, blocks of attention and MLP, final norm, head.

How a sublayer reads and writes the residual state is the design's; no design is named here.
"""

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from depthbench.config import DesignRef, Shape
from depthbench.designs import lay_out
from depthbench.model import attention
from depthbench.model.cache import Cache, CachedSequence
from depthbench.model.layers import MLP, Attention, Projection, base_normal
from depthbench.model.loss import summed_nll, token_nll
from depthbench.model.rotary import Rotary
from residuals import WEIGHT, Declared, Design, Sequence, State, initialise
from residuals.norms import RMSNorm

ROPE_THETA = 10_000.0


@dataclass(frozen=True)
class CausalSequence:
    """What a design's `attend` calls: rotation and the causal mask."""

    rotary: Rotary

    def __call__(self, q_BTHd: Tensor, k_BTGd: Tensor, v_BTGd: Tensor) -> Tensor:
        return attention.causal(q_BTHd, k_BTGd, v_BTGd, self.rotary)

    def joint(
        self,
        q_BTHd: Tensor,
        k_BTGd: Tensor,
        v_BTGd: Tensor,
        depth_k: State,
        depth_v: State,
        rotate_depth_query: bool = False,
    ) -> Tensor:
        qkv = (q_BTHd, k_BTGd, v_BTGd)
        return attention.joint(*qkv, self.rotary, depth_k, depth_v, rotate_depth_query)


class Embedding(Declared):
    """Token embedding (V, D)."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.declare("weight", (vocab_size, width), WEIGHT, base_normal())
        self.weight: nn.Parameter

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return F.embedding(tokens_BT, self.weight)


class Block(nn.Module):
    """One attention and one MLP sublayer, joined by the design.

    With `recompute` autograd keeps only what comes in, and runs the block again in the backward
    pass (activation checkpointing).
    """

    def __init__(self, shape: Shape, design: Design) -> None:
        super().__init__()
        self.attention = Attention(shape, design.init_gain)
        self.mlp = MLP(shape, design.init_gain)
        self.recompute = False

    def forward(self, k: int, visit: int, design: Design, state: State, seq: Sequence) -> State:
        if self.recompute and torch.is_grad_enabled():
            again = (self.after, k, visit, design, state, seq)
            # No rule draws at random.
            kept: State = checkpoint(*again, use_reentrant=False, preserve_rng_state=False)
            return kept
        return self.after(k, visit, design, state, seq)

    def after(self, k: int, visit: int, design: Design, state: State, seq: Sequence) -> State:
        """The state after both sublayers."""
        return self.halves(k, visit, design, state, seq)[-1][0]

    def halves(
        self, k: int, visit: int, design: Design, state: State, seq: Sequence
    ) -> tuple[tuple[State, Tensor], tuple[State, Tensor]]:
        """State after, and output of, the attention sublayer and the MLP."""
        x, carry = design.read(k, visit, state)
        o, carry = design.attend(k, visit, carry, *self.attention.project(x), seq)
        from_attention = self.attention.output(o)
        between = design.write(k, visit, carry, from_attention)
        x, carry = design.read(k + 1, visit + 1, between)
        from_mlp = self.mlp(x)
        state = design.write(k + 1, visit + 1, carry, from_mlp)
        return (between, from_attention), (state, from_mlp)


def run_blocks(
    design: Design, blocks: nn.ModuleList, x_BTD: Tensor, seq: CausalSequence, cache: Cache | None
) -> Tensor:
    """What the stack makes of x, from the design's start to its finish: (B, T, D)."""
    state, first = design.start(x_BTD), design.stack.first_visit
    for visit in range(0, design.stack.num_visits, 2):
        k = visit % design.stack.num_sublayers
        here = seq if cache is None else CachedSequence(seq.rotary, cache, first + visit)
        state = blocks[k // 2](k, visit, design, state, here)
    return design.finish(state)


class LanguageModel(nn.Module):
    """Embedding, something that reads it, final norm and untied head: what all decoders share."""

    def __init__(self, shape: Shape, vocab_size: int, norm_eps: float) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = Embedding(vocab_size, shape.d_model)
        self.final_norm = RMSNorm(shape.d_model, norm_eps)
        self.head = Projection(shape.d_model, {"head": vocab_size}, lambda *_: 1.0)

    def read(self, x_BTD: Tensor, seq: CausalSequence, cache: Cache | None) -> Tensor:
        """From the embedded tokens to what the final norm reads: (B, T, D)."""
        raise NotImplementedError

    def llama_gains(self) -> list[Tensor] | None:
        """The input-norm gains if this is exactly a Llama decoder, else None."""
        return None

    def forward(self, tokens_BT: Tensor, cache: Cache | None = None) -> Tensor:
        """What the head multiplies: (B, T, D).

        With a cache the tokens follow those that are in it, and it grows by them.
        """
        seq = self.sequence(tokens_BT.shape[1], 0 if cache is None else cache.length)
        x_BTD: Tensor = self.final_norm(self.read(self.embedding(tokens_BT), seq, cache))
        return x_BTD

    def sequence(self, length: int, start: int = 0) -> CausalSequence:
        """Causal mixing over `length` positions, the first of them `start`."""
        weight = self.embedding.weight
        positions = torch.arange(start, start + length, device=weight.device)
        return CausalSequence(Rotary.at(positions, self.shape.head_dim, ROPE_THETA, weight.dtype))

    def logits(self, tokens_BT: Tensor) -> Tensor:
        """(B, T, V)."""
        logits_BTV: Tensor = self.head(self(tokens_BT))
        return logits_BTV

    def summed_nll(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Sum over tokens of the negative log-likelihood in nats, with gradients."""
        return summed_nll(self(tokens_BT), self.head.weight, targets_BT)

    def token_nll(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Negative log-likelihood of every target in nats, (B, T), without gradients."""
        with torch.no_grad():
            return token_nll(self(tokens_BT), self.head.weight, targets_BT)


class Decoder(LanguageModel):
    """Llama-style decoder with a residual design: RMSNorm, RoPE, SwiGLU, no biases, untied head."""

    def __init__(self, shape: Shape, vocab_size: int, design: Design) -> None:
        super().__init__(shape, vocab_size, design.stack.norm_eps)
        self.design = design
        self.blocks = nn.ModuleList(Block(shape, design) for _ in range(shape.layers))

    def read(self, x_BTD: Tensor, seq: CausalSequence, cache: Cache | None) -> Tensor:
        return run_blocks(self.design, self.blocks, x_BTD, seq, cache)

    def llama_gains(self) -> list[Tensor] | None:
        return self.design.llama_gains()


M = TypeVar("M", bound=nn.Module)


def filled(model: M, seed: int, device: str | torch.device) -> M:
    """A model laid out on the meta device, with its initial values on `device`."""
    model.to_empty(device=device)
    initialise(model, seed)
    return model


def build_decoder(
    shape: Shape,
    vocab_size: int,
    design: DesignRef,
    norm_eps: float,
    seed: int,
    device: str = "cpu",
) -> Decoder:
    """An initialised decoder: laid out on the meta device, then filled where it will live."""
    residual = lay_out(design, shape, norm_eps)
    with torch.device("meta"):
        model = Decoder(shape, vocab_size, residual)
    return filled(model, seed, device)
