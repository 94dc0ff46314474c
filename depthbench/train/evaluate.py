"""Validation loss in nats per token and bits per byte, per source and overall, on a fixed set.

Each source contributes the first windows of its held-out stream, in proportion to its length; every
target is scored once. Bytes are those of the targets, so that losses under different tokenizers can
be told apart.
"""

from collections.abc import Iterator
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.errors import InputError
from depthbench.model.decoder import LanguageModel

TOKENS_AT_ONCE = 2048


def evaluate(model: LanguageModel, corpus: Corpus, config: CellConfig) -> dict[str, Any]:
    """`loss`, `bits_per_byte`, both by source, `tokens`, `bytes`."""
    nats, tokens, size = {}, {}, {}
    device, precision = torch.device(config.device), config.precision
    for source, windows in windows_by_source(corpus, config).items():
        nats[source] = 0.0
        for batch in _batches(windows, _windows_at_once(config)):
            ids = torch.from_numpy(batch.astype(np.int64)).to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                nll = model.token_nll(ids[:, :-1], ids[:, 1:])
            nats[source] += nll.sum(dtype=torch.float64).item()
        tokens[source] = windows[:, 1:].size
        size[source] = int(corpus.token_bytes[windows[:, 1:]].sum(dtype=np.int64))
    return {
        "loss": sum(nats.values()) / sum(tokens.values()),
        "bits_per_byte": sum(nats.values()) / log(2) / sum(size.values()),
        "loss_by_source": {s: nats[s] / tokens[s] for s in nats},
        "bits_per_byte_by_source": {s: nats[s] / log(2) / size[s] for s in nats},
        "tokens": sum(tokens.values()),
        "bytes": sum(size.values()),
    }


def windows_by_source(corpus: Corpus, config: CellConfig) -> dict[str, NDArray[Any]]:
    """Token windows (n, T + 1) of each source; consecutive windows share one token."""
    length = config.sequence_length
    total = sum(len(stream) for stream in corpus.validation.values())
    windows = {}
    for source, stream in sorted(corpus.validation.items()):
        available = (len(stream) - 1) // length
        wanted = round(config.evaluation.tokens * len(stream) / total / length)
        if available < 1:
            raise InputError(
                f"the validation stream {source} of {corpus.name} has {len(stream)} tokens, less "
                f"than one window of sequence_length = {length}: shorten it or add text"
            )
        num = min(max(wanted, 1), available)
        starts = np.arange(num)[:, None] * length
        windows[source] = np.asarray(stream)[starts + np.arange(length + 1)]
    return windows


def _windows_at_once(config: CellConfig) -> int:
    """No more tokens than a training forward holds, unless that is fewer than is worth a call."""
    return max(config.micro_batch_size, TOKENS_AT_ONCE // config.sequence_length)


def _batches(windows: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    return (windows[i : i + size] for i in range(0, len(windows), size))
