import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import depthbench
from tests.executors.one_node import missing, one_node_slurm
from tests.matrix.kit import CELL, Bench

ROOT = str(Path(depthbench.__file__).parents[1])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's programs find a cluster of one node."""
    if absent := missing():
        pytest.skip(f"{', '.join(absent)} not installed: apt-get install slurm-wlm munge")
    with one_node_slurm(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def in_slurm(cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The test is a user of the cluster."""
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", ROOT)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    (tmp_path / "cell.py").write_text(CELL)
    return Bench(tmp_path, io.StringIO())
