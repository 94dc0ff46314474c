"""From a cell's config to its model."""

import torch

from depthbench.config import CellConfig, CoreLoop
from depthbench.designs import lay_out_parts
from depthbench.model.decoder import Decoder, LanguageModel, filled
from depthbench.model.looped import LoopedDecoder


def lay_out_model(config: CellConfig) -> LanguageModel:
    """The cell's model on the meta device."""
    shape, vocab = config.shape, config.corpus.vocab_size
    parts = lay_out_parts(config.design, shape, config.norm_eps, config.loop)
    with torch.device("meta"):
        if isinstance(config.loop, CoreLoop):
            return LoopedDecoder(shape, vocab, parts, config.loop)
        return Decoder(shape, vocab, parts["whole"])


def build_model(config: CellConfig, device: str | None = None) -> LanguageModel:
    """The same with its initial values, on `device` or the cell's own."""
    return filled(lay_out_model(config), config.seed, device or config.device)
