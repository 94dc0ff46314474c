"""From texts to array files."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tokenizers import Tokenizer

from depthbench.data import files, tokenizer
from depthbench.data.layout import Array

_BATCH = 256


def write_token_bytes(folder: Path, encoder: Tokenizer, vocab_size: int) -> Array:
    """The bytes of each token as an array file, int32 [vocab]; types that only pad have none."""
    content = np.zeros(vocab_size, dtype="<i4")
    content[: encoder.get_vocab_size()] = tokenizer.token_bytes(encoder)
    files.write(folder / "token_bytes.bin", content.tobytes())
    digest = hashlib.sha256(content.tobytes()).hexdigest()
    return Array(file="token_bytes.bin", dtype="<i4", count=len(content), sha256=digest)


class Stream(ABC):
    """Documents that are tokens already and write themselves."""

    @abstractmethod
    def __len__(self) -> int:
        """Documents."""

    @abstractmethod
    def write(
        self, folder: Path, name: str, encoder: Tokenizer, progress: Callable[[int], None]
    ) -> Array:
        """Like `write_stream`."""


def write_stream(
    folder: Path,
    name: str,
    texts: Sequence[str] | Stream,
    encoder: Tokenizer,
    progress: Callable[[int], None],
) -> Array:
    """Encode `texts` into one array file, each ended by end-of-text; `progress` counts texts.

    All but the training stream start with one end-of-text, so that their first token is predicted.
    """
    if isinstance(texts, Stream):
        return texts.write(folder, name, encoder, progress)
    text_bytes = written = 0

    def chunks() -> Iterator[list[int]]:
        nonlocal text_bytes, written
        end = tokenizer.end_of_text(encoder)
        ids = [] if name == "train" else [end]
        for batch in in_batches(texts):
            for encoding in encoder.encode_batch_fast(batch, add_special_tokens=False):
                ids += encoding.ids
                ids.append(end)
            yield ids
            text_bytes += sum(len(text.encode()) for text in batch)
            written += len(batch)
            progress(written)
            ids = []

    array = write_array(folder, name, chunks(), token_dtype(encoder))
    return array.model_copy(update={"documents": len(texts), "text_bytes": text_bytes})


def write_array(
    folder: Path, name: str, chunks: Iterable[ArrayLike], dtype: np.dtype[Any]
) -> Array:
    """One array file of all chunks, without what is known of its documents."""
    file = f"{name.replace('/', '-')}.bin"
    digest, count = hashlib.sha256(), 0
    with files.replacing(folder / file) as out:
        for chunk in chunks:
            content = np.asarray(chunk, dtype=dtype)
            out.write(content.data)
            digest.update(content.data)
            count += len(content)
    return Array(file=file, dtype=dtype.str, count=count, sha256=digest.hexdigest())


def token_dtype(encoder: Tokenizer) -> np.dtype[Any]:
    """The smallest little-endian type that holds its tokens."""
    return np.dtype("<u2" if encoder.get_vocab_size() <= 65535 else "<u4")


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
