"""The decoder behind the interface of `transformers`: loss, logits, and `generate` with its cache.

A folder that `depthbench export` wrote names these classes; whoever loads it needs this package.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from depthbench.config import CellConfig
from depthbench.model.build import lay_out_model
from depthbench.model.decoder import filled


class DepthbenchConfig(PretrainedConfig):
    """`cell` is the config of the cell that was trained, whole."""

    model_type = "depthbench"
    has_no_defaults_at_init = True
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache"]

    def __init__(self, cell: dict[str, Any], **kwargs: Any) -> None:
        config = CellConfig.model_validate(cell)
        self.cell = cell
        self.vocab_size = config.corpus.vocab_size
        self.hidden_size = config.shape.d_model
        layers, loop = config.shape.layers, config.loop
        # As the cache counts them: a block that is run twice has two pairs of keys and values.
        self.num_hidden_layers = loop.executed_blocks(layers) if loop else layers
        self.num_attention_heads = config.shape.heads
        self.max_position_embeddings = config.sequence_length
        super().__init__(**{"tie_word_embeddings": False, **kwargs})


class DepthbenchForCausalLM(PreTrainedModel, GenerationMixin):
    """A decoder with any residual design. Padding is allowed on the right only."""

    config_class = DepthbenchConfig
    base_model_prefix = "decoder"

    def __init__(self, config: DepthbenchConfig) -> None:
        super().__init__(config)
        cell = CellConfig.model_validate(config.cell)
        self.decoder = lay_out_model(cell)
        if torch.get_default_device().type != "meta":
            filled(self.decoder, cell.seed, torch.get_default_device())
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Nothing: the decoder fills itself, by the rules it declares."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        cache: Cache | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Logits (B, T, V), and with `labels` the mean loss over those that are not -100.

        Labels are the inputs themselves, shifted here. Before it was `cache` the argument was
        `past_key_values`. Raises `ValueError` for padding on the left.
        """
        cache = past_key_values if cache is None else cache
        if attention_mask is not None and bool((attention_mask.diff(dim=-1) > 0).any()):
            raise ValueError(
                "the attention mask pads on the left, which this model cannot do: pad on the "
                "right, or give prompts of one length"
            )
        if cache is None and use_cache:
            cache = DynamicCache()
        x_BTD = self.decoder(input_ids, None if cache is None else _Dynamic(cache))
        logits_BTV = self.decoder.head(x_BTD[:, -logits_to_keep:])
        loss = None
        if labels is not None:
            size = self.config.vocab_size
            loss = self.loss_function(logits_BTV, labels, vocab_size=size, **kwargs)
        return CausalLMOutputWithPast(loss, logits_BTV, cache)


class _Dynamic:
    """A cache of `transformers`, (B, G, S, d) and numbered by attention, as the decoder's."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    @property
    def length(self) -> int:
        return int(self.cache.get_seq_length())

    def extend(self, visit: int, k_BTGd: Tensor, v_BTGd: Tensor) -> tuple[Tensor, Tensor]:
        new = (k_BTGd.transpose(1, 2), v_BTGd.transpose(1, 2))
        keys, values = self.cache.update(*new, visit // 2)
        return keys.transpose(1, 2), values.transpose(1, 2)
