"""A prepared corpus, open for reading."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from depthbench.config import CorpusRef
from depthbench.data.layout import TOKENIZER, Header, damaged, read_header, redo
from depthbench.errors import DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Corpus:
    """An open corpus.

    `train`, and the streams of `validation` by source and of `held_out` by name, are 1-D, uint16 or
    uint32, read-only and mapped from disk. `token_bytes` [vocab] are the UTF-8 bytes of each token.
    """

    path: Path
    header: Header
    train: NDArray[Any]
    validation: dict[str, NDArray[Any]]
    held_out: dict[str, NDArray[Any]]
    token_bytes: NDArray[np.int32]

    @property
    def name(self) -> str:
        return self.header.name

    @property
    def hash(self) -> str:
        return self.header.hash

    @property
    def tokenizer_hash(self) -> str:
        return self.header.tokenizer_hash

    @property
    def vocab_size(self) -> int:
        return self.header.vocab_size

    @property
    def end_of_text(self) -> int:
        return self.header.end_of_text

    @property
    def unigram_entropy(self) -> float:
        """Nats per token of the validation text under its own token frequencies."""
        return self.header.unigram_entropy

    def ref(self) -> CorpusRef:
        """What a cell's config keeps of it."""
        return CorpusRef(
            name=self.name,
            hash=self.hash,
            tokenizer_hash=self.tokenizer_hash,
            vocab_size=self.vocab_size,
        )

    def tokenizer(self) -> "Tokenizer":
        """The tokenizer that made the tokens."""
        from depthbench.data import tokenizer

        return tokenizer.load(self.path / TOKENIZER)


def open_corpus(path: Path, *, verify: bool = True) -> Corpus:
    """The corpus in the folder `path`.

    Sizes are always checked, hashes unless `verify` is false. Raises `DataError` naming what is
    missing or damaged, and what redoes it.
    """
    header = read_header(path)
    problems = dict(damaged(path, header, verify=verify))
    if problems:
        listed = "; ".join(f"{path / file} {problem}" for file, problem in problems.items())
        raise DataError(f"corpus {header.name} is damaged: {listed}. {redo(header.origin)}")
    streams = {
        name: np.memmap(path / array.file, dtype=array.dtype, mode="r", shape=(array.count,))
        for name, array in header.arrays.items()
    }
    return Corpus(
        path=path,
        header=header,
        train=streams["train"],
        validation=_under("validation/", streams),
        held_out=_under("held_out/", streams),
        token_bytes=np.asarray(streams["token_bytes"], dtype=np.int32),
    )


def _under(prefix: str, streams: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): stream
        for name, stream in streams.items()
        if name.startswith(prefix)
    }
