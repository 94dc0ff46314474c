from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.folder import CellFolder
from tests.kit import cell_document, tiny_corpus

MakeFolder = Callable[..., CellFolder]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    words = "a probe asks of every block what is lost without it and what follows it"
    return tiny_corpus(tmp_path_factory.mktemp("probed"), words, num=150)


@pytest.fixture
def make_folder(tmp_path: Path, corpus: Corpus) -> MakeFolder:
    """A cell of two blocks, not trained yet; `changes` replace fields of its config."""

    def make(design: str = "pre-ln", **changes: Any) -> CellFolder:
        changes = {"steps": 4} | changes
        folder = CellFolder(tmp_path / design)
        folder.create(CellConfig.model_validate(cell_document(corpus, design, **changes)))
        return folder

    return make
