from collections.abc import Iterator
from pathlib import Path

import pytest

from depthbench.data import Corpus
from depthbench.trained import TrainedCell, open_trained
from tests.harness.kit import build_corpus, done_cell


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    """Open, and where cells look for it."""
    with pytest.MonkeyPatch.context() as patch:
        corpus = build_corpus(tmp_path_factory.mktemp("text"))
        patch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
        yield corpus


@pytest.fixture(scope="session")
def cell(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return done_cell(tmp_path_factory.mktemp("cells") / "cell", corpus).path


@pytest.fixture(scope="session")
def trained(cell: Path) -> TrainedCell:
    return open_trained(cell)


@pytest.fixture(autouse=True)
def no_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    """lm-eval's survey of the machine takes seconds and is part of no number."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)
