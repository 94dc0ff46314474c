"""Which tokens are in a training batch: a pure function of corpus hash, seed and step."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from depthbench.data.corpus import Corpus
from depthbench.errors import InputError


def batch(
    corpus: Corpus, seed: int, step: int, batch_size: int, sequence_length: int
) -> NDArray[np.int64]:
    """Tokens [batch_size, sequence_length + 1] of step `step` (from 0).

    The stream is divided into windows of `sequence_length` inputs, each with its last target. An
    epoch goes through all windows once in an order of its own; the next one follows at once, so a
    batch may hold the end of one and the start of the next. Raises `InputError` when the corpus has
    fewer windows than one batch.
    """
    windows = num_windows(corpus, sequence_length)
    if windows < batch_size:
        raise InputError(
            f"corpus {corpus.name} has {windows} windows of {sequence_length} tokens, fewer than "
            f"one batch of {batch_size}: lower batch_size or sequence_length, or take more text"
        )
    rows = range(step * batch_size, (step + 1) * batch_size)
    chosen = [_order(corpus.hash, seed, row // windows, windows)[row % windows] for row in rows]
    offsets = np.arange(sequence_length + 1)
    starts = np.array(chosen, dtype=np.int64) * sequence_length
    return np.asarray(corpus.train[starts[:, None] + offsets], dtype=np.int64)


def num_windows(corpus: Corpus, sequence_length: int) -> int:
    """Windows in one epoch."""
    return max(0, (len(corpus.train) - 1) // sequence_length)


@lru_cache(maxsize=4)
def _order(corpus_hash: str, seed: int, epoch: int, windows: int) -> NDArray[np.int64]:
    """A permutation of the windows.

    Sorted raw draws, because numpy keeps the bits of a bit generator from version to version, but
    not what `Generator.permutation` makes of them.
    """
    key = np.random.SeedSequence(int(corpus_hash, 16), spawn_key=(seed, epoch))
    return np.argsort(np.random.PCG64(key).random_raw(windows), kind="stable")
