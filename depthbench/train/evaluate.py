"""Validation loss in nats per token and bits per byte, per source and overall, on a fixed set.

Each source contributes the first windows of its held-out stream, in proportion to its length; every
target is scored once. Bytes are those of the targets, so that losses under different tokenizers can
be told apart.
"""

from collections.abc import Iterator
from math import ceil, log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.errors import InputError
from depthbench.train.objective import Trainee
from depthbench.train.ranks import ALONE, World

TOKENS_AT_ONCE = 2048


def evaluate(
    trainee: Trainee, corpus: Corpus, config: CellConfig, world: World = ALONE
) -> dict[str, Any]:
    """`loss`, `bits_per_byte`, both by source, `tokens`, `bytes`; the same on every rank."""
    windows = windows_by_source(corpus, config)
    size = _windows_at_once(config)
    batches = [(source, b) for source, all_ in windows.items() for b in _batches(all_, size)]
    own = dict.fromkeys(windows, 0.0)
    for turn in range(ceil(len(batches) / world.num)):
        place = turn * world.num + world.rank
        # Ranks call a sharded model equally often: who has no batch left runs one and forgets it.
        source, batch = batches[place % len(batches)]
        nll = trainee.token_nll(torch.from_numpy(batch.astype(np.int64)).to(trainee.device))
        if place < len(batches):
            own[source] += nll.sum(dtype=torch.float64).item()
    trainee.rest()
    nats = dict(zip(own, world.sums(*own.values()), strict=True))
    tokens = {source: all_[:, 1:].size for source, all_ in windows.items()}
    size_of = {s: int(corpus.token_bytes[w[:, 1:]].sum(dtype=np.int64)) for s, w in windows.items()}
    return {
        "loss": sum(nats.values()) / sum(tokens.values()),
        "bits_per_byte": sum(nats.values()) / log(2) / sum(size_of.values()),
        "loss_by_source": {s: nats[s] / tokens[s] for s in nats},
        "bits_per_byte_by_source": {s: nats[s] / log(2) / size_of[s] for s in nats},
        "tokens": sum(tokens.values()),
        "bytes": sum(size_of.values()),
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
