import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from depthbench.config import CellConfig
from depthbench.data import Corpus, LocalOptions, open_corpus, prepare
from depthbench.folder import CellFolder

MakeConfig = Callable[..., CellConfig]
MakeCell = Callable[..., CellFolder]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def corpus(cache: Path) -> Corpus:
    """About 12,000 tokens of 300 types, prepared from text as a user would."""
    words = "of depth and width the naïve question 漢字 is how far a narrow stack reads".split()
    folder = cache.parent / f"{cache.name}-text"
    folder.mkdir()
    rows = (
        " ".join(words[(n * k + k * k + n) % len(words)] for k in range(20 + n % 41))
        for n in range(150)
    )
    (folder / "tiny.jsonl").write_text(
        "".join(json.dumps({"text": f"{n}. {row}"}) + "\n" for n, row in enumerate(rows))
    )
    options = LocalOptions(vocab_size=300, validation_share=0.15)
    return open_corpus(prepare(folder / "tiny.jsonl", cache, local=options))


@pytest.fixture(scope="session")
def make_config(corpus: Corpus) -> MakeConfig:
    """A cell that takes milliseconds a step; `changes` replace fields, nested ones by mapping."""

    def make(design: str = "pre-ln", learning_rate: float = 1e-2, **changes: Any) -> CellConfig:
        document = {
            "suite": "unit",
            "ladder": "inline",
            "design": {"name": design, "version": 1},
            "shape": {"layers": 2, "d_model": 16, "ffn": 24, "heads": 2},
            "corpus": corpus.ref().model_dump(),
            "sequence_length": 16,
            "batch_size": 4,
            "micro_batch_size": 4,
            "steps": 40,
            "optimizer": {"learning_rate": learning_rate},
            "evaluation": {"tokens": 128, "points": 4},
            "norm_eps": 1e-6,
            "seed": 3,
        }
        return CellConfig.model_validate(document | changes)

    return make


@pytest.fixture
def make_cell(tmp_path: Path) -> MakeCell:
    """A folder of the config, `name` below the test's own directory."""

    def make(config: CellConfig, name: str = "cell") -> CellFolder:
        folder = CellFolder(tmp_path / name)
        folder.create(config)
        return folder

    return make
