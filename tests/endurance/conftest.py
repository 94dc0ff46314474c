"""One small cell, what it comes to when nothing happens to it, and a matrix of real processes."""

import io
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import depthbench
from depthbench import cell, matrix
from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.executors.local import LocalExecutor
from depthbench.folder import CellFolder
from tests.endurance.kit import SAVING_AFTER_EVERY_STEP
from tests.kit import cell_document, tiny_corpus
from tests.matrix.kit import Planned

RunMatrix = Callable[..., int]


@pytest.fixture(scope="session")
def endurance_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    words = "whoever is cut off within a word finds the same word when it comes back to it"
    return tiny_corpus(tmp_path_factory.mktemp("text"), words)


@pytest.fixture(autouse=True)
def surroundings(endurance_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every process that a test starts."""
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(endurance_corpus.path.parents[1]))
    monkeypatch.setenv("PYTHONPATH", str(Path(depthbench.__file__).parents[1]))


@pytest.fixture(scope="session")
def config(endurance_corpus: Corpus) -> CellConfig:
    """Its checkpoint of a few hundred kB is much more than its other files."""
    shape = {"layers": 2, "d_model": 32, "ffn": 64, "heads": 2}
    document = cell_document(endurance_corpus, shape=shape, steps=24)
    return CellConfig.model_validate(document)


@pytest.fixture(scope="session")
def undisturbed(
    config: CellConfig, endurance_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> CellFolder:
    """The cell, run in this process to its end."""
    folder = CellFolder(tmp_path_factory.mktemp("undisturbed") / config.folder_name())
    folder.create(config)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(endurance_corpus.path.parents[1]))
        assert cell.main(folder.path, checkpoint_seconds=0.0) == 0
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return folder


@pytest.fixture
def run_matrix() -> RunMatrix:
    """Runs cells in `out` with one process each, and returns how many are not finished."""

    def run(configs: list[CellConfig], out: Path, jobs: int = 1, **options: Any) -> int:
        executor = LocalExecutor(jobs, **{"command": SAVING_AFTER_EVERY_STEP} | options)
        console = Console(file=io.StringIO(), width=200)
        return matrix.run([Planned(c) for c in configs], out, console=console, executor=executor)

    return run
