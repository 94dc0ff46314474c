"""The tokenised shards of a corpus as one stream, its documents shuffled across all of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from depthbench.data import encode, tokenizer
from depthbench.data.encode import Stream
from depthbench.data.hub.shards import INDEX, offsets
from depthbench.data.layout import Array

_DOCUMENTS_AT_ONCE = 4096


@dataclass(frozen=True)
class Part:
    """A tokenised shard, of which the first documents that reach `limit` tokens are taken."""

    name: str
    source_sha256: str
    tokens: Path
    index: Path
    limit: int

    def taken(self) -> NDArray[np.int64]:
        """Places in the index, ascending, of the documents that are taken."""
        index = np.fromfile(self.index, INDEX)
        by_row = np.argsort(index["row"])
        before = np.cumsum(index["tokens"][by_row], dtype=np.int64) - index["tokens"][by_row]
        return np.sort(by_row[before < self.limit])


class Merged(Stream):
    """The documents of all parts in order of place: sorted by hash, so shuffled as a whole.

    Every shard was written in runs that are sorted alike, so that each file is read from its
    beginning to its end as many times as it has runs side by side, and memory holds the index only.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        indexes = [np.fromfile(part.index, INDEX) for part in parts]
        taken = [part.taken() for part in parts]
        self._files = [part.tokens for part in parts]
        self._part = np.repeat(np.arange(len(parts)), [len(chosen) for chosen in taken])
        self._start = _joined([offsets(i)[:-1][t] for i, t in zip(indexes, taken, strict=True)])
        found = [index[chosen] for index, chosen in zip(indexes, taken, strict=True)]
        self._index = np.concatenate([np.empty(0, INDEX), *found])

    def __len__(self) -> int:
        return len(self._index)

    def write(
        self, folder: Path, name: str, encoder: Tokenizer, progress: Callable[[int], None]
    ) -> Array:
        dtype = encode.token_dtype(encoder)
        chunks = self._chunks(name != "train", tokenizer.end_of_text(encoder), dtype, progress)
        array = encode.write_array(folder, name, chunks, dtype)
        text_bytes = int(self._index["bytes"].sum(dtype=np.int64))
        return array.model_copy(update={"documents": len(self), "text_bytes": text_bytes})

    def _chunks(
        self, led: bool, end: int, dtype: np.dtype[Any], progress: Callable[[int], None]
    ) -> Iterator[NDArray[Any]]:
        if led:
            yield np.array([end], dtype)
        shards = [_mapped(file, dtype) for file in self._files]
        order = np.lexsort((self._index["row"], self._part, self._index["place"]))
        for first in range(0, len(order), _DOCUMENTS_AT_ONCE):
            block = order[first : first + _DOCUMENTS_AT_ONCE]
            starts, ends = self._start[block], self._start[block] + self._index["tokens"][block]
            yield np.concatenate(
                [shards[p][a:b] for p, a, b in zip(self._part[block], starts, ends, strict=True)]
            )
            progress(first + len(block))


def _mapped(file: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if not file.stat().st_size:  # which cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(file, dtype, mode="r"))


def _joined(arrays: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *arrays])
