"""From texts to array files."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from depthbench.data import files, tokenizer
from depthbench.data.layout import Array

_BATCH = 256


def write_token_bytes(folder: Path, encoder: Tokenizer) -> Array:
    """The bytes of each token as an array file, int32 [vocab]."""
    content = tokenizer.token_bytes(encoder).astype("<i4")
    files.write(folder / "token_bytes.bin", content.tobytes())
    digest = hashlib.sha256(content.tobytes()).hexdigest()
    return Array(file="token_bytes.bin", dtype="<i4", count=len(content), sha256=digest)


def write_stream(
    folder: Path,
    name: str,
    texts: Sequence[str],
    encoder: Tokenizer,
    progress: Callable[[int], None],
) -> Array:
    """Encode `texts` into one array file, each ended by end-of-text; `progress` counts texts.

    All but the training stream start with one end-of-text, so that their first token is predicted.
    """
    end = tokenizer.end_of_text(encoder)
    dtype = np.dtype("<u2" if encoder.get_vocab_size() <= 65535 else "<u4")
    file = f"{name.replace('/', '-')}.bin"
    digest, count, text_bytes, written = hashlib.sha256(), 0, 0, 0
    with files.replacing(folder / file) as out:
        ids = [] if name == "train" else [end]
        for batch in in_batches(texts):
            for encoding in encoder.encode_batch_fast(batch, add_special_tokens=False):
                ids += encoding.ids
                ids.append(end)
            content = np.array(ids, dtype=dtype).tobytes()
            out.write(content)
            digest.update(content)
            count += len(ids)
            text_bytes += sum(len(text.encode()) for text in batch)
            written += len(batch)
            progress(written)
            ids = []
    return Array(
        file=file,
        dtype=dtype.str,
        count=count,
        sha256=digest.hexdigest(),
        documents=len(texts),
        text_bytes=text_bytes,
    )


def in_batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """`texts` in slices small enough to hold in memory."""
    for start in range(0, len(texts), _BATCH):
        yield texts[start : start + _BATCH]


def unigram_entropy(streams: Mapping[str, NDArray[Any]], vocab_size: int) -> float:
    """Nats per token of all predicted tokens (the first of a stream is only context)."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for stream in streams.values():
        counts += np.bincount(stream[1:], minlength=vocab_size)
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())
