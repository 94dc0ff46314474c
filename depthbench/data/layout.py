"""A prepared corpus on disk: raw little-endian arrays and a header that pins them.

- `header.json`: a `Header`, written last, so that a folder without one is not a corpus;
- `tokenizer.json`: what made the tokens;
- `token_bytes.bin`: int32 [vocab];
- `train.bin`: documents in shuffled order, each ended by the end-of-text id;
- `validation-<source>.bin`: held-out documents likewise, led by one end-of-text id;
- `held_out-<name>.bin`: documents set aside for an evaluation, as in validation.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from depthbench.config import Frozen
from depthbench.data import files
from depthbench.errors import DataError

FORMAT = 1
"""Raised when the files change, or what a local text becomes before it is tokens."""
HEADER, TOKENIZER = "header.json", "tokenizer.json"


class Array(Frozen):
    """One file of numbers, and the documents and bytes of text behind them."""

    file: str
    dtype: str
    count: int
    sha256: str
    documents: int = 0
    text_bytes: int = 0


class Stages(Frozen):
    """What stands on disk so far."""

    tokenizer_hash: str
    arrays: dict[str, Array]


class Header(Stages):
    """All that is known of a finished corpus; `sources` are hashes of the files it came from."""

    format: int
    name: str
    origin: str
    hash: str
    recipe: str
    sources: dict[str, str]
    licences: dict[str, str]
    vocab_size: int
    end_of_text: int
    unigram_entropy: float


def read_header(path: Path) -> Header:
    """The header of the corpus in `path`. Raises `DataError` saying what redoes it."""
    file = path / HEADER
    if not file.is_file():
        raise DataError(f"{path} is not a prepared corpus, it has no {HEADER}. {redo('CORPUS')}")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found.get("format", FORMAT) != FORMAT:
            raise DataError(
                f"{file} has format {found['format']}, and this version of depthbench reads "
                f"{FORMAT}. {redo(found.get('origin', 'CORPUS'))}"
            )
        header = Header.model_validate(found)
    except (ValueError, AttributeError, ValidationError):
        raise DataError(f"{file} is damaged. {redo('CORPUS')}") from None
    if content_hash(header) != header.hash:
        raise DataError(
            f"{file} is damaged: its hash is not that of its arrays. {redo(header.origin)}"
        )
    return header


def damaged(path: Path, stages: Stages, *, verify: bool) -> Iterator[tuple[str, str]]:
    """File and fault of every file that is not as `stages` records it."""
    for array in stages.arrays.values():
        file = path / array.file
        expected = array.count * np.dtype(array.dtype).itemsize
        if not file.is_file():
            yield array.file, "is missing"
        elif file.stat().st_size != expected:
            yield array.file, f"has {file.stat().st_size} bytes instead of {expected}"
        elif verify and files.sha256(file) != array.sha256:
            yield array.file, "does not have the sha256 that the header records"
    file = path / TOKENIZER
    if not file.is_file():
        yield TOKENIZER, "is missing"
    elif verify and files.sha256(file) != stages.tokenizer_hash:
        yield TOKENIZER, "does not have the sha256 that the header records"


def content_hash(stages: Stages) -> str:
    """The corpus hash: of the tokenizer and of every array, not of names, paths or dates."""
    arrays = {name: [a.dtype, a.count, a.sha256] for name, a in stages.arrays.items()}
    content = json.dumps([stages.tokenizer_hash, arrays], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def redo(origin: str) -> str:
    """The sentence on what to do with a corpus that is not whole."""
    return f"`depthbench data prepare {origin}` redoes only what is missing."
