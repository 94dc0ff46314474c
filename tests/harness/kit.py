"""A tiny prepared corpus, and done cells on it whose weights are random but far from initial."""

from pathlib import Path
from typing import Any

import torch

from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.folder import CellFolder, write_json
from depthbench.model.build import build_model
from depthbench.train.weights import save_weights
from tests.kit import cell_document, tiny_corpus

LENGTH = 24
WORDS = (
    "a cell is a folder, that one command runs; whoever asked naïve 漢字 questions of it".split()
)


def build_corpus(folder: Path) -> Corpus:
    return tiny_corpus(folder, " ".join(WORDS), num=90, vocab_size=300)


def done_cell(
    path: Path,
    corpus: Corpus,
    design: str = "pre-ln",
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> CellFolder:
    """Everything that a run leaves behind and a reader looks at."""
    sizes = {
        "shape": {"layers": 2, "d_model": 32, "ffn": 48, "heads": 4, "kv_heads": 2},
        "sequence_length": LENGTH,
    }
    document = cell_document(corpus, design, **sizes)
    document["design"]["options"] = options or {}
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
