"""What tests of several parts train on: a tiny corpus, prepared as users do, and cells."""

import json
from pathlib import Path
from typing import Any

import residuals
from depthbench.config import CellConfig
from depthbench.data import Corpus, LocalOptions, open_corpus, prepare


def tiny_corpus(folder: Path, words: str, num: int = 120, vocab_size: int = 280) -> Corpus:
    """The documents of `write_rows`, prepared."""
    text = write_rows(folder, words, num)
    options = LocalOptions(vocab_size=vocab_size, validation_share=0.2)
    return open_corpus(prepare(text, folder / "cache", local=options))


def write_rows(folder: Path, words: str, num: int = 120) -> Path:
    """A file of `num` documents made of the words, in orders that no two of them share."""
    known = words.split()
    rows = (
        " ".join(known[(n * k + n) % len(known)] for k in range(30 + n % 31)) for n in range(num)
    )
    text = folder / "rows.jsonl"
    text.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return text


def no_corpus(vocab_size: int) -> dict[str, Any]:
    """What a cell that is only laid out says of its corpus."""
    return {"name": "none", "hash": "aa", "tokenizer_hash": "bb", "vocab_size": vocab_size}


def cell_config(
    design: str | dict[str, Any] = "pre-ln", vocab_size: int = 23, **changes: Any
) -> CellConfig:
    """A cell to be laid out, built or counted, not trained: of a design's newest version, if named.

    A design that is given as a reference need not exist.
    """
    if isinstance(design, str):
        design = {"name": design, "version": residuals.get(design).version}
    document = cell_document(None) | {"design": design, "corpus": no_corpus(vocab_size)}
    return CellConfig.model_validate(document | changes)


def cell_document(corpus: Corpus | None, design: str = "pre-ln", **changes: Any) -> dict[str, Any]:
    """The config of a cell of two blocks that takes milliseconds a step."""
    document = {
        "suite": "unit",
        "ladder": "inline",
        "design": {"name": design, "version": 1},
        "shape": {"layers": 2, "d_model": 8, "ffn": 16, "heads": 2},
        "corpus": corpus.ref().model_dump() if corpus else no_corpus(23),
        "sequence_length": 8,
        "batch_size": 4,
        "micro_batch_size": 4,
        "steps": 12,
        "optimizer": {"learning_rate": 1e-2},
        "evaluation": {"tokens": 64, "points": 1},
        "norm_eps": 1e-6,
        "seed": 1,
    }
    return document | changes
