"""The same matrix through every engine, with cells that really train."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from depthbench import matrix
from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.executors import Executor
from depthbench.executors.local import LocalExecutor
from depthbench.executors.slurm import SlurmExecutor, SlurmOptions
from depthbench.folder import CellFolder, read_metrics
from depthbench.store import Record, records
from tests.executors.kit import run_beside, send_term
from tests.kit import cell_document, tiny_corpus
from tests.matrix.kit import Planned, wait_until

MEMORY_BYTES = 600 * 2**20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    words = "an engine only starts the command on a folder and the truth is on disk"
    return tiny_corpus(tmp_path_factory.mktemp("text"), words)


@pytest.fixture
def own_cache(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))


def cell(corpus: Corpus, design: str, **changes: Any) -> Any:
    config = CellConfig.model_validate(cell_document(corpus, design, **changes))
    return Planned(config, memory_bytes=MEMORY_BYTES, disk_bytes=1)


def cells(corpus: Corpus) -> list[Any]:
    """Three, the last of which takes some seconds."""
    return [cell(corpus, "keel"), cell(corpus, "hc"), cell(corpus, "pre-ln", steps=400)]


def run(given: list[Any], out: Path, executor: Executor) -> list[Record]:
    written = io.StringIO()
    left = matrix.run(given, out, console=Console(file=written), executor=executor)
    assert left == 0, written.getvalue()
    return records([out / each.config.folder_name() for each in given])


@pytest.fixture(scope="module")
def undisturbed(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells, run on this machine one after the other."""
    out = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
        run(cells(corpus), out, LocalExecutor(jobs=1))
    return out


@contextmanager
def _slurm(request: pytest.FixtureRequest) -> Iterator[Executor]:
    request.getfixturevalue("in_slurm")
    yield SlurmExecutor(SlurmOptions(), every=0.5)


@contextmanager
def _ray(request: pytest.FixtureRequest) -> Iterator[Executor]:
    pytest.importorskip("ray")
    from depthbench.executors.ray import RayExecutor, RayOptions
    from tests.executors.ray_kit import ray_nodes

    with ray_nodes() as cluster:
        yield RayExecutor(RayOptions(address=cluster.address))


ENGINES = {"slurm": _slurm, "ray": _ray}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_rows_of_this_machine(
    engine: str,
    corpus: Corpus,
    undisturbed: Path,
    own_cache: None,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    given, out = cells(corpus), tmp_path / "runs"
    start: Callable[..., Any] = ENGINES[engine]
    with start(request) as executor:
        rows = run(given, out, executor)
    expected = records([undisturbed / each.config.folder_name() for each in given])
    assert [row["status"] for row in rows] == ["done"] * 3
    for row, other in zip(rows, expected, strict=True):
        assert set(row) == set(other)
        same = ("digest", "cell", "config", "loss", "step", "tokens", "parameters", "torch")
        assert {name: row[name] for name in same} == {name: other[name] for name in same}
    for each in given:
        assert losses(out, each) == losses(undisturbed, each) != []


def losses(out: Path, given: Any) -> list[float]:
    """Of every step that was logged."""
    folder = CellFolder(out / given.config.folder_name())
    return [record["loss"] for record in read_metrics(folder.metrics_path) if "loss" in record]


def test_a_cell_that_slurm_interrupts_loses_nothing(
    corpus: Corpus, undisturbed: Path, in_slurm: None, own_cache: None, tmp_path: Path
) -> None:
    """SIGTERM, a checkpoint, exit code 75, back into the queue, and the loss of a quiet run."""
    given = cells(corpus)[2]
    executor = SlurmExecutor(SlurmOptions(), every=0.5)
    folder = CellFolder(tmp_path / given.config.folder_name())
    seen: dict[str, Any] = {}

    def interrupt() -> None:
        wait_until(lambda: len(read_metrics(folder.metrics_path)) > 20, seconds=120)
        send_term(executor)
        wait_until(folder.result_path.exists, seconds=30)
        seen.update(json.loads(folder.result_path.read_text()))
        seen["checkpoints"] = len(list(folder.checkpoints_path.iterdir()))

    left, _ = run_beside([given], tmp_path, executor, interrupt)
    assert left == 0
    assert seen["status"] == "interrupted"
    assert 0 < seen["step"] < 400
    assert seen["checkpoints"] > 0
    assert folder.log_path.read_text().count("cell starts as Slurm job") == 2
    [row], [quiet] = records([folder.path]), records([undisturbed / folder.path.name])
    assert row["loss"] == quiet["loss"]
    assert losses(tmp_path, given) == losses(undisturbed, given)
