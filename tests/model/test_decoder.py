"""The decoder: names, sizes, and that Pre-LN is exactly a transformers Llama."""

from pathlib import Path

import pytest
import torch

from depthbench.config import DesignRef, Shape
from depthbench.errors import InputError
from depthbench.model.decoder import Decoder, build_decoder
from depthbench.model.export import to_llama

VOCAB = 37


def make(kv_heads: int = 4, design: str = "pre-ln", seed: int = 0, eps: float = 1e-6) -> Decoder:
    shape = Shape(layers=3, d_model=32, ffn=48, heads=4, kv_heads=kv_heads)
    return build_decoder(shape, VOCAB, DesignRef(name=design, version=1), eps, seed)


def sharpen(model: Decoder) -> None:
    """Weights at which every part of the model matters: attention far from uniform, gains apart."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter * 8 if parameter.ndim == 2 else parameter + 0.3 * noise)


def tokens() -> torch.Tensor:
    return torch.randint(VOCAB, (2, 70), generator=torch.Generator().manual_seed(2))


def test_parameter_names_and_sizes() -> None:
    expected = {
        "embedding.weight": (VOCAB, 32),
        "final_norm.gain": (32,),
        "head.weight": (VOCAB, 32),
        **{f"design.norms.{k}.gain": (32,) for k in range(6)},
    }
    for b in range(3):
        expected |= {
            f"blocks.{b}.attention.qkv.weight": (32 + 16 + 16, 32),
            f"blocks.{b}.attention.out.weight": (32, 32),
            f"blocks.{b}.mlp.gate_up.weight": (96, 32),
            f"blocks.{b}.mlp.down.weight": (32, 48),
        }
    model = make(kv_heads=2)
    assert {name: tuple(p.shape) for name, p in model.named_parameters()} == expected
    assert all(p.dtype is torch.float32 for p in model.parameters())
    assert not list(model.buffers())


def test_embedding_and_head_are_untied() -> None:
    model = make()
    assert not torch.equal(model.embedding.weight, model.head.weight)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_pre_ln_is_a_transformers_llama(kv_heads: int, eps: float) -> None:
    model = make(kv_heads, eps=eps)
    sharpen(model)
    llama = to_llama(model)
    with torch.no_grad():
        ours, theirs = model.logits(tokens()), llama(tokens()).logits
    assert ours.std() > 0.3
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    config = llama.config
    assert config.num_key_value_heads == kv_heads
    assert config.rms_norm_eps == eps
    assert not config.tie_word_embeddings
    assert sum(p.numel() for p in llama.parameters()) == sum(p.numel() for p in model.parameters())


def test_exported_weights_survive_their_file(tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    model = make(kv_heads=2)
    sharpen(model)
    to_llama(model).save_pretrained(tmp_path)
    with torch.no_grad():
        theirs = LlamaForCausalLM.from_pretrained(tmp_path)(tokens()).logits
        torch.testing.assert_close(model.logits(tokens()), theirs, rtol=0, atol=1e-5)


def test_export_copies_the_weights() -> None:
    model = make()
    before = model.head.weight.detach().clone()
    llama = to_llama(model)
    with torch.no_grad():
        for parameter in llama.parameters():
            parameter.zero_()
    assert torch.equal(model.head.weight, before)


@pytest.mark.parametrize("design", ["lns", "sandwich-ln", "hc", "moda", "full-attnres", "post-ln"])
def test_what_llama_cannot_express_is_refused(design: str) -> None:
    with pytest.raises(InputError, match=design):
        to_llama(make(design=design))


def test_losses_are_those_of_the_logits() -> None:
    model = make()
    sharpen(model)
    x, y = tokens()[:, :-1], tokens()[:, 1:]
    logits = model.logits(x)
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), y.flatten(), reduction="none"
    )
    torch.testing.assert_close(model.token_nll(x, y).flatten(), expected, rtol=1e-5, atol=1e-5)
    assert model.summed_nll(x, y).item() == pytest.approx(expected.sum().item(), rel=1e-6)


def test_padding_the_batch_or_the_future_changes_nothing() -> None:
    model = make().double()
    sharpen(model)
    whole = model.logits(tokens())
    torch.testing.assert_close(model.logits(tokens()[:1]), whole[:1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model.logits(tokens()[:, :9]), whole[:, :9], rtol=1e-12, atol=1e-12)
