"""A decoder whose stack is exactly Llama's, as a `transformers` model."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from depthbench.errors import InputError
from depthbench.model.decoder import ROPE_THETA, Block, Decoder

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


def to_llama(model: Decoder, context: int = 2048, end_of_text: int = 0) -> LlamaForCausalLM:
    """The same function as a `LlamaForCausalLM`: equal logits to the precision of the dtype.

    `context` is the number of positions it was trained on; texts begin and end with `end_of_text`.
    Raises `InputError` for a design whose stack Llama cannot express.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    gains = model.design.llama_gains()
    if gains is None:
        raise InputError(
            f"design {model.design.name!r} is not a Llama stack and has no such checkpoint: "
            "only plain Pre-LN has"
        )
    shape = model.shape
    config = LlamaConfig(
        vocab_size=model.embedding.weight.shape[0],
        hidden_size=shape.d_model,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        rms_norm_eps=model.design.stack.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        max_position_embeddings=context,
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
        tie_word_embeddings=False,
        attention_bias=False,
        mlp_bias=False,
    )
    config.dtype = model.embedding.weight.dtype
    llama: LlamaForCausalLM = LlamaForCausalLM._from_config(config)
    llama.load_state_dict(_llama_state(model, gains))
    llama.eval()
    return llama


@torch.no_grad()
def _llama_state(model: Decoder, gains: list[Tensor]) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {
        "model.embed_tokens.weight": model.embedding.weight,
        "model.norm.weight": model.final_norm.gain,
        "lm_head.weight": model.head.weight,
    }
    for b, module in enumerate(model.blocks):
        block = cast(Block, module)
        layer = f"model.layers.{b}"
        state[f"{layer}.input_layernorm.weight"] = gains[2 * b]
        state[f"{layer}.post_attention_layernorm.weight"] = gains[2 * b + 1]
        attention = {**block.attention.qkv.matrices(), **block.attention.out.matrices()}
        for name, matrix in attention.items():
            state[f"{layer}.self_attn.{name}_proj.weight"] = matrix
        for name, matrix in {**block.mlp.gate_up.matrices(), **block.mlp.down.matrices()}.items():
            state[f"{layer}.mlp.{name}_proj.weight"] = matrix
    return state
