"""Cells on a Ray cluster of several nodes: started, moved, stopped, and never left behind."""

import io
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from depthbench import matrix, store
from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.errors import InputError
from depthbench.executors.ray import RayExecutor, RayOptions
from depthbench.executors.ray_cluster import connect
from depthbench.executors.ray_worker import Start, run_cell
from depthbench.folder import CellFolder, read_metrics
from tests.executors.ray_kit import add_node, ended, node_of, parent, pid_of, ray_nodes, task
from tests.kit import cell_document, tiny_corpus
from tests.matrix.kit import Bench, Planned, alive, planned, wait_until

Make = Callable[..., RayExecutor]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    variables = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_AUTH_MODE": "token",  # without a token Ray would write one into the home directory
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        with ray_nodes() as cluster:
            yield cluster


@pytest.fixture
def make(bench: Bench, nodes: Any) -> Iterator[Make]:
    """Executors of the cluster, which start fake cells unless a command is given."""
    made: list[RayExecutor] = []

    def make(
        command: tuple[str, ...] = (sys.executable, str(bench.cell)),
        plugins: tuple[Path, ...] = (),
        **options: Any,
    ) -> RayExecutor:
        executor = RayExecutor(
            RayOptions(address=nodes.address, **options), plugins, command=command
        )
        made.append(executor)
        return executor

    yield make
    for executor in made:
        executor.stop()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    words = "nodes come and go while the folder of a cell stays where every node can see it"
    return tiny_corpus(tmp_path_factory.mktemp("text"), words)


@pytest.fixture(scope="module")
def config(corpus: Corpus) -> CellConfig:
    """A cell that takes some seconds."""
    return CellConfig.model_validate(cell_document(corpus, "pre-ln", steps=500))


@pytest.fixture(scope="module")
def undisturbed(
    config: CellConfig, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same, run on this machine."""
    out = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
        cells: list[Any] = [Planned(config)]
        assert matrix.run(cells, out, jobs=1, console=Console(file=io.StringIO())) == 0
    return out


def rows(out: Path) -> dict[str, dict[str, Any]]:
    """What may not depend on who started a cell, by its name."""
    table = store.rows(store.cell_folders(out)).set_index("cell")
    columns = ["digest", "status", "loss", "bits_per_byte", "train_loss", "tokens"]
    return {str(cell): dict(row) for cell, row in table[columns].iterrows()}


def test_a_cell_of_a_lost_node_goes_on_elsewhere(
    tmp_path: Path, nodes: Any, config: CellConfig, corpus: Corpus, undisturbed: Path
) -> None:
    cache = {"DEPTHBENCH_CACHE": str(corpus.path.parents[1])}
    folder = CellFolder(tmp_path / config.folder_name())
    running = parent(tmp_path, [config], (), address=nodes.address, environment=cache)
    wait_until(lambda: folder.metrics_path.exists(), seconds=60)
    wait_until(lambda: len(read_metrics(folder.metrics_path)) > 2, seconds=60)
    pid = pid_of(folder.path)
    nodes.remove_node(node_of(nodes, pid), allow_graceful=False)
    wait_until(lambda: not alive(pid), seconds=30)
    assert any(folder.checkpoints_path.iterdir())  # it saved, long before a minute was over
    add_node(nodes)
    output, _ = running.communicate(timeout=120)
    assert running.returncode == 0, output
    assert "raylet" not in output
    assert folder.log_path.read_text().count("cell starts") == 2
    expected = rows(undisturbed)[folder.path.name]
    assert rows(tmp_path) == {folder.path.name: expected}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the cell itself asks")
@pytest.mark.parametrize("joined", [True, False])
def test_no_cell_outlives_a_killed_matrix(bench: Bench, nodes: Any, joined: bool) -> None:
    """In a cluster that stays, and in one that was started for the matrix."""
    cell = planned("long", steps=10_000)
    address = nodes.address if joined else "local"
    command = (sys.executable, str(bench.cell))
    running = parent(bench.out, [cell.config], command, address=address)
    folder = bench.folder(cell)
    wait_until(lambda: folder.metrics_path.exists() and bench.steps(cell)[-1:] > [2], seconds=60)
    running.kill()
    running.communicate()
    wait_until(lambda: not alive(bench.pid(cell)), seconds=10)
    assert folder.status() == "interrupted"


def submitted(bench: Bench, executor: RayExecutor, *cells: Any) -> list[Any]:
    tasks = []
    for cell in cells:
        bench.folder(cell).create(cell.config)
        tasks.append(task(bench.folder(cell).path))
    executor.submit(tasks)
    return tasks


def wait_for_steps(bench: Bench, executor: RayExecutor, *cells: Any) -> None:
    def begun() -> bool:
        assert executor.poll() == []
        folders = [bench.folder(cell) for cell in cells]
        return all(folder.metrics_path.exists() for folder in folders) and all(
            len(bench.steps(cell)) > 2 for cell in cells
        )

    wait_until(begun, seconds=60)


def test_stop_lets_cells_save_and_the_executor_serves_again(bench: Bench, make: Make) -> None:
    executor = make()
    cells = [planned("long", seed, steps=60) for seed in range(3)]
    tasks = submitted(bench, executor, *cells)
    wait_until(lambda: not executor.poll() and len(executor.running()) == 2, seconds=60)
    assert executor.slots == 2
    begun = [cells[tasks.index(one)] for one in executor.running()]
    wait_for_steps(bench, executor, *begun)
    executor.stop()
    states = [bench.folder(cell).status() for cell in cells]
    assert sorted(states) == ["interrupted", "interrupted", "pending"]
    assert not any(alive(bench.pid(cell)) for cell in begun)
    assert all(bench.folder(cell).result() for cell in begun)
    assert executor.running() == []
    executor.submit(tasks)
    assert {end.returncode for end in ended(executor, 3)} == {0}
    assert [bench.steps(cell) for cell in cells] == [list(range(1, 61))] * 3


@pytest.mark.parametrize("again", [False, True])
def test_a_cell_that_does_not_save_is_killed_after_the_grace_or_on_a_second_request(
    bench: Bench, make: Make, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = make(grace_seconds=60 if again else 0.5)
    stubborn = planned("stubborn", steps=10_000)
    submitted(bench, executor, stubborn)
    wait_for_steps(bench, executor, stubborn)
    start = time.monotonic()
    if again:
        # Where the tests run in the background SIGINT is ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        second = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
        second.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                executor.stop()
        finally:
            signal.signal(signal.SIGINT, before)
    else:
        executor.stop()
    wait_until(lambda: not alive(bench.pid(stubborn)), seconds=5)
    assert time.monotonic() - start < 30
    assert bench.folder(stubborn).status() == "interrupted"
    assert bench.folder(stubborn).result() is None


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"ranks": 2, "threads": 8}, "has 16 CPU, 0.0 GiB of memory, which"),
        ({"device": "cuda", "ranks": 2}, "has 2 CPU, 2 GPU, which"),
        ({"memory_bytes": 2**50}, "has 1 CPU, 1048576.0 GiB of memory, which"),
    ],
)
def test_what_no_node_can_hold_is_said(
    tmp_path: Path, make: Make, needs: dict[str, Any], said: str
) -> None:
    executor = make(node_wait_seconds=1)
    executor.submit([task(tmp_path, **needs)])
    [end] = ended(executor)
    assert end.returncode > 0
    assert said in end.reason
    assert "The most that one has: 1 CPU, " in end.reason
    assert executor.poll() == executor.running() == []


def test_a_cell_gets_its_threads_plugins_and_variables(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", "/the/cache")
    monkeypatch.chdir(tmp_path)
    Path("cell").mkdir()
    script = 'echo "$OMP_NUM_THREADS $DEPTHBENCH_CACHE $MORE $PPID-$DEPTHBENCH_PARENT $@"; exit 3'
    command = ("/bin/sh", "-c", script, "cell")
    executor = make(command, (Path("mine.py"),), environment={"MORE": "a b"})
    executor.submit([task(Path("cell"))])
    [end] = ended(executor)
    assert (end.returncode, end.reason) == (3, "")
    assert end.task == task(Path("cell"))
    words = (tmp_path / "cell/log.txt").read_text().splitlines()[-1].split()
    threads, cache, a, b, parents, *arguments = words
    assert (threads, cache, a, b) == ("1", "/the/cache", "a", "b")
    assert len(set(parents.split("-"))) == 1
    assert arguments == [str(tmp_path / "cell"), "--plugin", str(tmp_path / "mine.py")]


def test_a_folder_that_a_node_does_not_see_is_said(tmp_path: Path, make: Make) -> None:
    executor = make()
    executor.submit([task(tmp_path / "elsewhere")])
    [end] = ended(executor)
    assert end.returncode > 0
    folder = tmp_path / "elsewhere"
    assert end.reason == (
        f"the cell could not be started: [Errno 2] No such file or directory: '{folder}/log.txt'. "
        f"Every node has to see {folder}, and run this depthbench"
    )


def test_a_cell_is_started_again_as_often_as_is_allowed(bench: Bench, make: Make) -> None:
    executor = make(retries=1)
    cell = planned("long", steps=10_000)
    submitted(bench, executor, cell)
    wait_for_steps(bench, executor, cell)
    first = bench.pid(cell)
    os.kill(psutil.Process(first).ppid(), signal.SIGKILL)
    wait_until(lambda: not alive(first), seconds=10)
    assert bench.folder(cell).result()  # it saved
    reached = bench.steps(cell)[-1]
    log = bench.folder(cell).log_path
    wait_until(lambda: f"begins after step {reached}\n" in log.read_text(), seconds=30)
    assert executor.poll() == []
    second = bench.pid(cell)
    os.kill(psutil.Process(second).ppid(), signal.SIGKILL)
    [end] = ended(executor)
    assert end.returncode > 0
    assert end.reason.startswith("Ray lost the cell: ")
    wait_until(lambda: not alive(second), seconds=10)


def test_a_cell_starts_once_the_one_before_it_has_saved(tmp_path: Path) -> None:
    """On the node, where the process that a lost worker left behind still holds the folder."""
    folder = CellFolder(tmp_path)
    start = Start(("/bin/sh", "-c", 'touch "$0/started"'), (), grace=20)
    held = threading.Event()
    released: list[int] = []

    def save() -> None:
        with folder.lock():
            held.set()
            time.sleep(1)
            released.append(time.time_ns())

    saving = threading.Thread(target=save)
    saving.start()
    held.wait()
    assert run_cell(task(tmp_path), start) == 0
    saving.join()
    assert (tmp_path / "started").stat().st_mtime_ns > released[0]


def test_a_cluster_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    before = signal.getsignal(signal.SIGTERM)
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "nonsense"):
        with pytest.raises(InputError, match=f"no Ray cluster at {address}"):
            connect(address)
    assert signal.getsignal(signal.SIGTERM) == before
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'depthbench\[ray\]'"):
        connect(None)
