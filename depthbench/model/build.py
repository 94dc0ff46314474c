"""From a cell's config to its model."""

import torch

from depthbench.config import CellConfig, CoreLoop
from depthbench.designs import lay_out, lay_out_parts
from depthbench.model.decoder import Decoder, LanguageModel
from depthbench.model.looped import LoopedDecoder
from residuals import initialise


def lay_out_model(config: CellConfig) -> LanguageModel:
    """The cell's model on the meta device."""
    shape, vocab, eps = config.shape, config.corpus.vocab_size, config.norm_eps
    with torch.device("meta"):
        if isinstance(config.loop, CoreLoop):
            parts = lay_out_parts(config.design, shape, eps, config.loop)
            return LoopedDecoder(shape, vocab, parts, config.loop)
        rounds = config.loop.rounds if config.loop else 1
        return Decoder(shape, vocab, lay_out(config.design, shape, eps, rounds))


def build_model(config: CellConfig, device: str | None = None) -> LanguageModel:
    """The same with its initial values, on `device` or the cell's own."""
    model = lay_out_model(config)
    model.to_empty(device=device or config.device)
    initialise(model, config.seed)
    return model
