import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import residuals
from depthbench.config import CellConfig
from depthbench.data import Corpus, LocalOptions, open_corpus, prepare
from depthbench.folder import CellFolder

MakeFolder = Callable[..., CellFolder]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("probed")
    words = "a probe asks of every block what is lost without it and what follows it".split()
    rows = (" ".join(words[(n * k + n) % 15] for k in range(30 + n % 31)) for n in range(150))
    (folder / "probed.jsonl").write_text("".join(json.dumps({"text": r}) + "\n" for r in rows))
    options = LocalOptions(vocab_size=280, validation_share=0.2)
    return open_corpus(prepare(folder / "probed.jsonl", folder / "cache", local=options))


@pytest.fixture
def make_folder(tmp_path: Path, corpus: Corpus) -> MakeFolder:
    """A cell of two blocks, not trained yet; `changes` replace fields of its config."""

    def make(design: str = "pre-ln", **changes: Any) -> CellFolder:
        document = {
            "suite": "unit",
            "ladder": "inline",
            "design": {"name": design, "version": residuals.get(design).version},
            "shape": {"layers": 2, "d_model": 8, "ffn": 16, "heads": 2},
            "corpus": corpus.ref().model_dump(),
            "sequence_length": 8,
            "batch_size": 4,
            "micro_batch_size": 4,
            "steps": 4,
            "optimizer": {"learning_rate": 1e-2},
            "evaluation": {"tokens": 64},
            "norm_eps": 1e-6,
            "seed": 1,
        }
        folder = CellFolder(tmp_path / design)
        folder.create(CellConfig.model_validate(document | changes))
        return folder

    return make
