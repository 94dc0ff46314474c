"""A tiny prepared corpus, and done cells on it whose weights are random but far from initial."""

import json
from pathlib import Path
from typing import Any

import torch

from depthbench.config import CellConfig
from depthbench.data import Corpus, LocalOptions, open_corpus, prepare
from depthbench.folder import CellFolder, write_json
from depthbench.model.build import build_model
from depthbench.train.checkpoint import save_weights

LENGTH = 24
WORDS = (
    "a cell is a folder, that one command runs; whoever asked naïve 漢字 questions of it".split()
)


def build_corpus(folder: Path) -> Corpus:
    rows = (
        " ".join(WORDS[(n * k + n) % len(WORDS)] for k in range(30 + n % 31)) for n in range(90)
    )
    text = folder / "cells.jsonl"
    text.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    options = LocalOptions(vocab_size=300, validation_share=0.2)
    return open_corpus(prepare(text, folder / "cache", local=options))


def done_cell(
    path: Path,
    corpus: Corpus,
    design: str = "pre-ln",
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> CellFolder:
    """Everything that a run leaves behind and a reader looks at."""
    document = {
        "suite": "unit",
        "ladder": "inline",
        "design": {"name": design, "version": 1, "options": options or {}},
        "shape": {"layers": 2, "d_model": 32, "ffn": 48, "heads": 4, "kv_heads": 2},
        "corpus": corpus.ref().model_dump(),
        "sequence_length": LENGTH,
        "batch_size": 4,
        "micro_batch_size": 4,
        "steps": 12,
        "optimizer": {"learning_rate": 0.01},
        "evaluation": {"tokens": 64, "points": 3},
        "norm_eps": 1e-6,
        "seed": 1,
    }
    config = CellConfig.model_validate(document | changes)
    folder = CellFolder(path)
    folder.create(config)
    model = build_model(config)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter * 4 + 0.15 * noise)
    save_weights(folder.model_path, model)
    measures = {"loss": 4.25, "bits_per_byte": 2.5}
    result = {"schema": 1, "status": "done", "measures": measures}
    write_json(folder.result_path, result)
    return folder
