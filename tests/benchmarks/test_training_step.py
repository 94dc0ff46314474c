"""A whole training step: forward, backward, AdamW; fp32, one thread, 8 × 256 tokens, eager."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

import residuals
from depthbench.config import DesignRef, Shape
from depthbench.model.decoder import build_decoder

Compare = Callable[[str, Callable[[], object], Callable[[], object], str], None]

VOCABULARY, SEQUENCES, LENGTH = 4096, 8, 256
WIDE = Shape(layers=8, d_model=128, ffn=352, heads=4)
DEEP = Shape(layers=32, d_model=64, ffn=176, heads=2)
TARGETS = {
    "full-attnres": "at most 1.6",
    "block-attnres": "at most 1.2",
    "hc": "at most 1.4",
    "mhc": "at most 1.7",
    "moda": "at most 1.6",
}


def _stepper(model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], None]:
    tokens = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        loss(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()

    return step


def _ours(design: str, shape: Shape) -> Callable[[], None]:
    ref = DesignRef(name=design, version=residuals.get(design).version)
    model = build_decoder(shape, VOCABULARY, ref, norm_eps=1e-10, seed=0)
    return _stepper(model, lambda x, y: model.summed_nll(x, y) / y.numel())


def _llama(shape: Shape) -> Callable[[], None]:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=shape.d_model,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=False,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    return _stepper(
        model,
        lambda x, y: F.cross_entropy(model(input_ids=x).logits.flatten(0, 1), y.flatten()),
    )


@pytest.mark.parametrize(("shape", "rate"), [(WIDE, 1.15), (DEEP, 1.25)], ids=["d128", "d64"])
def test_pre_ln_against_transformers(compare: Compare, shape: Shape, rate: float) -> None:
    name = f"Pre-LN / transformers Llama, L{shape.layers} d{shape.d_model}"
    target = f"at most {1 / rate:.3f} ({rate} × its tokens per second)"
    compare(name, _ours("pre-ln", shape), _llama(shape), target)


@pytest.mark.parametrize("design", [d for d in residuals.names() if d != "pre-ln"])
def test_design_against_pre_ln(compare: Compare, design: str) -> None:
    family = residuals.get(design).family
    target = TARGETS.get(design, "at most 1.15" if family == "norm" else "")
    name = f"{design} / pre-ln, L{DEEP.layers} d{DEEP.d_model}"
    compare(name, _ours(design, DEEP), _ours("pre-ln", DEEP), target)
