import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import depthbench
from depthbench import matrix, progress
from depthbench.config import CellConfig
from depthbench.errors import DepthbenchError, InputError
from depthbench.executors import Ended, Task
from depthbench.executors.local import LocalExecutor
from depthbench.folder import CellFolder, read_metrics, read_result, write_json

ROOT = str(Path(depthbench.__file__).parents[1])

# A cell command whose behaviour is the option "act" of its design. Loss after step n is 8 / n.
CELL = """
import os, signal, sys, time
from pathlib import Path
from depthbench.executors.local import watch_parent
from depthbench.folder import CellFolder, Metrics, read_metrics, write_json

watch_parent()
folder = CellFolder(Path(sys.argv[1]))
config = folder.config()
act = config.design.options["act"]
asked = []
signal.signal(signal.SIGTERM, signal.SIG_IGN if act == "stubborn" else lambda *_: asked.append(1))
(folder.path / "pid").write_text(str(os.getpid()))

def end(status, **more):
    result = {"schema": 1, "status": status, "config": config.model_dump(), "step": step,
              "diverged_step": None, "error": None, "measures": None}
    write_json(folder.result_path, result | more)

with folder.lock():
    if folder.finished:  # by another process, while this one waited for the lock
        sys.exit()
    done = read_metrics(folder.metrics_path)
    step = done[-1]["step"] if done else 0
    print("begins after step", step, flush=True)
    with Metrics(folder.metrics_path) as metrics:
        while step < config.steps and not asked:
            step += 1
            metrics.append({"step": step, "loss": 8 / step, "tokens_per_second": 2500.0,
                            "eta": 7.0})
            if step == 2 and act == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if step == 2 and act == "raises":
                raise RuntimeError("boom of the cell")
            if step == 2 and act == "diverges":
                end("diverged", diverged_step=2)
                sys.exit()
            time.sleep(0.05 if act in ("long", "stubborn") else 0)
    if asked:
        end("interrupted")
        sys.exit(75)
    end("done", measures={"loss": 8 / step}, ledger={"tokens_per_second": 2500.0})
"""

# Runs the matrix of the configs in argv[3] the way the command line does.
PARENT = """
import json, signal, sys
from pathlib import Path
from types import SimpleNamespace
from depthbench import matrix
from depthbench.config import CellConfig
from depthbench.executors.local import LocalExecutor

signal.signal(signal.SIGINT, signal.default_int_handler)
out, cell, configs = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
cells = [
    SimpleNamespace(config=CellConfig(**c), seconds=1.0, memory_bytes=1, disk_bytes=1)
    for c in configs
]
executor = LocalExecutor(
    command=[sys.executable, cell], cores=2, memory_bytes=100, grace=float(sys.argv[4])
)
try:
    sys.exit(matrix.run(cells, out, executor=executor))
except KeyboardInterrupt:
    sys.exit(75)
"""


@dataclass(frozen=True)
class Planned:
    """What the matrix reads of a planned cell."""

    config: CellConfig
    seconds: float = 1.0
    memory_bytes: int = 1
    disk_bytes: int = 1


def planned(act: str, seed: int = 0, steps: int = 4, **costs: Any) -> Any:
    config = CellConfig.model_validate(
        {
            "suite": "unit",
            "ladder": "none",
            "design": {"name": "fake", "version": 1, "options": {"act": act}},
            "shape": {"layers": 2, "d_model": 8, "ffn": 16, "heads": 2},
            "corpus": {"name": "none", "hash": "a", "tokenizer_hash": "b", "vocab_size": 16},
            "sequence_length": 4,
            "batch_size": 2,
            "micro_batch_size": 2,
            "steps": steps,
            "optimizer": {"learning_rate": 0.001},
            "evaluation": {"tokens": 8},
            "norm_eps": 1e-6,
            "seed": seed,
        }
    )
    return Planned(config, **costs)


@dataclass
class Bench:
    """A matrix of fake cells in one folder."""

    path: Path
    written: io.StringIO

    @property
    def out(self) -> Path:
        return self.path / "runs"

    @property
    def cell(self) -> Path:
        return self.path / "cell.py"

    def run(self, *cells: Any, **limits: Any) -> int:
        limits = {"cores": 2, "memory_bytes": 100} | limits
        executor = LocalExecutor(command=[sys.executable, str(self.cell)], **limits)
        console = Console(file=self.written, width=200)
        return matrix.run(cells, self.out, console=console, executor=executor)

    def parent(self, *cells: Any, grace: float = 20.0) -> subprocess.Popen[str]:
        script = self.path / "parent.py"
        script.write_text(PARENT)
        configs = json.dumps([cell.config.model_dump() for cell in cells])
        return subprocess.Popen(
            [sys.executable, str(script), str(self.out), str(self.cell), configs, str(grace)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def folder(self, cell: Any) -> CellFolder:
        return CellFolder(self.out / cell.config.folder_name())

    def steps(self, cell: Any) -> list[int]:
        return [record["step"] for record in read_metrics(self.folder(cell).metrics_path)]

    def pid(self, cell: Any) -> int:
        return int((self.folder(cell).path / "pid").read_text())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    (tmp_path / "cell.py").write_text(CELL)
    return Bench(tmp_path, io.StringIO())


def wait_until(true: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return state.stdout.strip() != "" and not state.stdout.startswith("Z")


def test_failures_stay_in_their_cells_and_are_counted(bench: Bench) -> None:
    good, diverging = planned("good"), planned("diverges")
    raising, killed = planned("raises"), planned("killed", memory_bytes=33)
    assert bench.run(killed, raising, diverging, good) == 2
    assert [bench.folder(c).status() for c in (good, diverging, raising, killed)] == [
        "done",
        "diverged",
        "failed",
        "failed",
    ]
    error = read_result(bench.folder(raising).result_path)["error"]
    assert "exit code 1" in error
    assert "RuntimeError: boom of the cell" in error
    result = read_result(bench.folder(killed).result_path)
    assert "SIGKILL" in result["error"]
    assert "out of memory" in result["error"]
    assert "33 bytes" in result["error"]
    assert result["step"] == 2
    assert result["measures"] is None
    assert CellConfig.model_validate(result["config"]) == killed.config
    text = bench.written.getvalue()
    assert "1 of 4 cells done, 1 diverged, 2 not finished" in text
    assert "without a result: RuntimeError: boom of the cell\n" in text
    assert "loss 2.0000" in text
    assert "2.5k tok/s" in text


def test_finished_cells_are_skipped_and_the_others_go_on(bench: Bench) -> None:
    good, diverging, raising = planned("good"), planned("diverges"), planned("raises", steps=5)
    assert bench.run(good, diverging, raising) == 1
    stamps = [bench.folder(c).result_path.stat().st_mtime_ns for c in (good, diverging)]
    # The failed cell has steps 1 and 2 behind it, so that this time it does not raise.
    assert bench.run(good, diverging, raising) == 0
    assert stamps == [bench.folder(c).result_path.stat().st_mtime_ns for c in (good, diverging)]
    assert bench.steps(raising) == [1, 2, 3, 4, 5]
    assert "begins after step 2" in bench.folder(raising).log_path.read_text()
    assert "2 of 3 cells are finished already" in bench.written.getvalue()


def test_a_damaged_result_is_named_and_the_cell_runs_again(bench: Bench) -> None:
    good = planned("good")
    bench.folder(good).create(good.config)
    bench.folder(good).result_path.write_text('{"schema": 1, "sta')
    assert bench.run(good) == 0
    assert f"{bench.folder(good).result_path} cannot be read" in bench.written.getvalue()


def test_a_stale_result_does_not_hide_a_crash(bench: Bench) -> None:
    killed = planned("killed")
    bench.folder(killed).create(killed.config)
    write_json(bench.folder(killed).result_path, {"schema": 1, "status": "interrupted", "step": 0})
    assert bench.run(killed) == 1
    assert bench.folder(killed).status() == "failed"


def test_a_cell_of_another_process_is_left_to_it(bench: Bench) -> None:
    long, good = planned("long", steps=20), planned("good", steps=3)
    other = bench.parent(long, good)
    wait_until(lambda: len(bench.steps(long)) > 0)
    assert bench.run(long, good) == 0
    assert other.wait() == 0
    assert bench.steps(long) == list(range(1, 21))
    assert bench.folder(long).log_path.read_text().count("begins") == 1
    assert bench.steps(good) == [1, 2, 3]


def test_too_little_disk_is_refused_before_anything_is_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = 10_000_000
    usage = shutil.disk_usage("/")
    free = [1_999_999]
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: type(usage)(total, total - free[0], free[0])
    )
    cells = [planned("good", seed, disk_bytes=1_000_000) for seed in (0, 1)]
    with pytest.raises(DepthbenchError, match="2,000,000 bytes of disk and 1,999,999 are free"):
        bench.run(*cells)
    assert not bench.out.exists()
    assert bench.run(cells[0]) == 0
    # A finished cell needs nothing, and an interrupted one only what it has not got yet.
    free[0] = 999_000
    with pytest.raises(DepthbenchError, match="1,000,000 bytes of disk and 999,000 are free"):
        bench.run(*cells)
    checkpoints = bench.folder(cells[1]).checkpoints_path
    checkpoints.mkdir(parents=True)
    (checkpoints / "step").write_bytes(b"x" * 1_000)
    assert bench.run(*cells) == 0


def test_a_folder_of_another_experiment_is_refused(bench: Bench) -> None:
    good, other = planned("good"), planned("good", seed=1)
    bench.folder(good).create(other.config)
    with pytest.raises(InputError, match="different experiment"):
        bench.run(other, good)
    assert not bench.folder(other).path.exists()


def test_interrupt_lets_cells_save_and_the_next_run_goes_on(bench: Bench) -> None:
    cells = [planned("long", 0, 30), planned("long", 1, 30), planned("good", 2)]
    parent = bench.parent(*cells)
    wait_until(lambda: all(len(bench.steps(cell)) > 2 for cell in cells[:2]))
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    output, _ = parent.communicate()
    assert parent.returncode == 75
    assert "Stopped with 0 of 3 cells finished" in output
    assert "the same command" in output
    assert not any(alive(bench.pid(cell)) for cell in cells[:2])
    states = [bench.folder(cell).status() for cell in cells]
    assert states == ["interrupted", "interrupted", "pending"]
    reached = bench.steps(cells[0])[-1]
    assert reached < 30
    assert bench.run(*cells) == 0
    assert bench.steps(cells[0]) == list(range(1, 31))
    assert f"from step {reached}" in bench.written.getvalue()


def test_a_cell_that_ignores_the_request_is_killed_after_the_grace(bench: Bench) -> None:
    stubborn = planned("stubborn", steps=10_000)
    parent = bench.parent(stubborn, grace=0.5)
    wait_until(lambda: len(bench.steps(stubborn)) > 0)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait(timeout=10) == 75
    assert not alive(bench.pid(stubborn))
    assert bench.folder(stubborn).status() == "interrupted"


def test_a_second_interrupt_does_not_wait(bench: Bench) -> None:
    stubborn = planned("stubborn", steps=10_000)
    parent = bench.parent(stubborn, grace=60.0)
    wait_until(lambda: len(bench.steps(stubborn)) > 0)
    parent.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert parent.poll() is None
    parent.send_signal(signal.SIGINT)
    assert parent.wait(timeout=10) == 75
    assert not alive(bench.pid(stubborn))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the cell itself asks")
def test_no_cell_outlives_a_killed_parent(bench: Bench) -> None:
    cell = planned("long", steps=10_000)
    parent = bench.parent(cell)
    wait_until(lambda: len(bench.steps(cell)) > 0)
    parent.kill()
    parent.wait()
    wait_until(lambda: not alive(bench.pid(cell)), seconds=10)
    assert bench.folder(cell).status() == "interrupted"


def test_a_parent_that_died_before_the_watch_is_noticed(bench: Bench) -> None:
    code = "from depthbench.executors.local import watch_parent; watch_parent()"
    environment = os.environ | {"DEPTHBENCH_PARENT": str(os.getpid())}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
    environment["DEPTHBENCH_PARENT"] = str(os.getppid())
    done = subprocess.run([sys.executable, "-c", code], env=environment)
    assert done.returncode == -signal.SIGTERM


def tasks(path: Path, *memory: int, threads: int = 1, device: str = "cpu") -> list[Task]:
    folders = [path / str(number) for number in range(len(memory))]
    for folder in folders:
        folder.mkdir()
    return [
        Task(folder, device, threads, size, 1.0)
        for folder, size in zip(folders, memory, strict=True)
    ]


def run_all(executor: LocalExecutor, given: Sequence[Task]) -> tuple[list[Ended], int, list[str]]:
    """What ended, how many ran at once at most, and the order in which they started."""
    executor.submit(given)
    ended: list[Ended] = []
    started: list[str] = []
    most = 0
    while len(ended) < len(given):
        ended += executor.poll()
        names = [task.folder.name for task in executor.running()]
        started += [name for name in names if name not in started]
        most = max(most, len(names))
        time.sleep(0.01)
    return ended, most, started


SLEEP = ("/bin/sh", "-c", "sleep 0.1")


@pytest.mark.parametrize(
    ("memory", "task", "limits", "expected"),
    [
        ((1,) * 6, {}, {"cores": 3}, 3),
        ((1,) * 6, {"threads": 2}, {"cores": 5}, 2),
        ((1,) * 4, {"threads": 8}, {"cores": 2}, 1),
        ((1,) * 5, {"threads": 2}, {"cores": 2, "jobs": 4}, 4),
        ((60, 60, 60), {}, {"cores": 3}, 1),
        ((50, 50, 50), {}, {"cores": 3}, 2),
        ((60, 60, 40, 40), {}, {"cores": 3, "jobs": 3}, 2),
        ((1000, 1), {}, {"cores": 2}, 1),
        ((1, 1, 1), {"device": "cuda"}, {"cores": 3}, 1),
    ],
)
def test_as_many_cells_at_once_as_cores_and_memory_allow(
    tmp_path: Path,
    memory: tuple[int, ...],
    task: dict[str, Any],
    limits: dict[str, int],
    expected: int,
) -> None:
    executor = LocalExecutor(command=SLEEP, **({"memory_bytes": 100} | limits))  # type: ignore[arg-type]
    ended, most, _ = run_all(executor, tasks(tmp_path, *memory, **task))
    assert most == expected
    assert [one.returncode for one in ended] == [0] * len(memory)


def test_a_small_cell_passes_one_that_does_not_fit_yet(tmp_path: Path) -> None:
    executor = LocalExecutor(command=SLEEP, cores=2, memory_bytes=100)
    _, _, started = run_all(executor, tasks(tmp_path, 60, 60, 40))
    assert started == ["0", "2", "1"]


def test_a_cell_gets_its_threads_plugins_and_log(tmp_path: Path) -> None:
    script = 'echo "$OMP_NUM_THREADS $MKL_NUM_THREADS $DEPTHBENCH_PARENT $@"; echo late >&2; exit 3'
    command = ("/bin/sh", "-c", script, "cell")
    executor = LocalExecutor(plugins=[tmp_path / "mine.py"], command=command, cores=2)
    [task] = tasks(tmp_path, 1, threads=2)
    [ended], _, _ = run_all(executor, [task])
    assert ended.returncode == 3
    log = (task.folder / "log.txt").read_text()
    assert f"2 2 {os.getpid()} {task.folder} --plugin {tmp_path / 'mine.py'}\nlate\n" in log


def test_what_a_cell_leaves_behind_is_ended_with_it(tmp_path: Path) -> None:
    command = ("/bin/sh", "-c", 'sleep 60 & echo $! > "$0/left"')
    [task] = tasks(tmp_path, 1)
    run_all(LocalExecutor(command=command), [task])
    left = int((task.folder / "left").read_text())
    wait_until(lambda: not alive(left), seconds=5)


def test_a_cell_that_cannot_be_started_is_contained(tmp_path: Path) -> None:
    [task] = tasks(tmp_path, 1)
    [ended], _, _ = run_all(LocalExecutor(command=["/no/such/command"]), [task])
    assert ended.returncode > 0
    assert "/no/such/command" in ended.reason


def test_no_jobs_are_refused() -> None:
    with pytest.raises(InputError, match="jobs = 0"):
        LocalExecutor(jobs=0)


class Recorder:
    """An executor that only remembers; every cell it is given ends as `done` at once."""

    slots = 1

    def __init__(self) -> None:
        self.order: list[str] = []

    def submit(self, tasks: Sequence[Task]) -> None:
        self.new = list(tasks)

    def poll(self) -> list[Ended]:
        for task in self.new:
            self.order.append(task.folder.name)
            result = {"schema": 1, "status": "done", "measures": {"loss": 1.0}}
            result["ledger"] = {"tokens_per_second": None}
            write_json(task.folder / "result.json", result)
        return [Ended(task, 0, time.time()) for task in self.new]

    def running(self) -> list[Task]:
        return []

    def stop(self) -> None:
        pass


class Loser(Recorder):
    """The first process it starts finds that another one has just begun to run the cell."""

    def poll(self) -> list[Ended]:
        if not self.new or self.order:
            return super().poll()
        [task] = self.new
        self.order.append("lost")
        self.other = CellFolder(task.folder).lock()
        self.other.__enter__()
        self.release = threading.Timer(0.3, self.other.__exit__, [None, None, None])
        self.release.start()
        return [Ended(task, 1, time.time())]


def test_a_lost_race_for_a_cell_is_no_failure(tmp_path: Path) -> None:
    good = planned("good")
    loser, written = Loser(), io.StringIO()
    assert matrix.run([good], tmp_path, console=Console(file=written), executor=loser) == 0
    assert loser.order == ["lost", good.config.folder_name()]
    assert "failed " not in written.getvalue()


def test_the_longest_cells_start_first(tmp_path: Path) -> None:
    cells = [planned("good", seed, seconds=seconds) for seed, seconds in enumerate((5, 60, 20))]
    recorder = Recorder()
    console = Console(file=io.StringIO())
    assert matrix.run(cells, tmp_path, console=console, executor=recorder) == 0
    assert recorder.order == [cells[number].config.folder_name() for number in (1, 2, 0)]


def test_status_lists_every_cell(bench: Bench) -> None:
    good, raising, waiting = planned("good"), planned("raises"), planned("good", seed=1, steps=9)
    bench.run(good, raising)
    bench.folder(waiting).create(waiting.config)
    (bench.out / "zz").mkdir()
    (bench.out / "zz/config.json").write_text("{}")
    lines = {line["cell"]: line for line in matrix.status(bench.out)}
    assert len(lines) == 4
    assert lines[good.config.folder_name()] == {
        "cell": good.config.folder_name(),
        "design": "fake",
        "shape": "L2 d8",
        "seed": 0,
        "status": "done",
        "step": 4,
        "steps": 4,
        "loss": 2.0,
        "tokens_per_second": 2500.0,
        "eta": None,
        "error": None,
    }
    failed = lines[raising.config.folder_name()]
    assert (failed["status"], failed["step"], failed["loss"]) == ("failed", 2, 4.0)
    assert "boom" in failed["error"]
    pending = lines[waiting.config.folder_name()]
    assert (pending["status"], pending["step"], pending["steps"]) == ("pending", 0, 9)
    assert lines["zz"]["status"] == "failed"
    assert "zz/config.json" in lines["zz"]["error"]
    with bench.folder(raising).lock():
        [line] = matrix.status(bench.folder(raising).path)
    assert (line["status"], line["eta"], line["error"]) == ("running", 7.0, None)


def test_a_terminal_shows_running_cells_and_the_matrix(bench: Bench) -> None:
    console = Console(file=bench.written, width=120, force_terminal=True, color_system=None)
    executor = LocalExecutor(command=[sys.executable, str(bench.cell)], cores=2)
    assert (
        matrix.run([planned("long", steps=14)], bench.out, console=console, executor=executor) == 0
    )
    text = bench.written.getvalue()
    assert "fake L2 d8 seed 0" in text
    assert "loss" in text
    assert "2.5k tok/s" in text
    assert "matrix 0/1 finished, 0 failed, 1 running" in text


@pytest.mark.parametrize(
    ("running", "waiting", "slots", "expected"),
    [
        ([], [], 2, 0.0),
        ([5.0, 1.0], [], 2, 5.0),
        ([5.0, 1.0], [3.0, 2.0], 2, 6.0),
        ([], [4.0, 3.0, 3.0], 2, 6.0),
        ([], [4.0, 3.0, 3.0], 1, 10.0),
        ([2.0, 9.0], [1.0], 1, 9.0),
    ],
)
def test_time_left_fills_free_slots_in_order(
    running: list[float], waiting: list[float], slots: int, expected: float
) -> None:
    assert progress.time_left(running, waiting, slots) == expected


def test_time_left_follows_the_measured_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell planned at 1000 s that takes 1000 s for its first half is half as fast as planned."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_PRIOR_SECONDS", 0.001)
    first, second = planned("good", 0, steps=100), planned("good", 1, steps=100)
    tracks = {
        tmp_path / name: progress.Track(CellFolder(tmp_path / name), cell.config, 1000.0, name)
        for name, cell in (("first", first), ("second", second))
    }
    for path in tracks:
        path.mkdir()
    written = io.StringIO()
    with progress.Progress(Console(file=written, width=200), tracks) as shown:
        shown.refresh([tmp_path / "first"], 1)
        (tmp_path / "first/metrics.jsonl").write_text('{"step": 50, "loss": 1.0}\n')
        now[0] = 1000.0
        shown.refresh([tmp_path / "first"], 1)
    # 500 planned seconds of the first cell and 1000 of the second, each taking two.
    assert "elapsed 16:40, about 50:00 left" in written.getvalue()


def test_labels_are_short_and_never_shared() -> None:
    one, two, other = planned("a").config, planned("b").config, planned("a", seed=1).config
    assert progress.labels([one, two, other]) == [
        one.folder_name(),
        two.folder_name(),
        "fake L2 d8 seed 1",
    ]
    assert [progress.clock(s) for s in (0.4, 59.6, 3599.0, 3661.0)] == [
        "0:00",
        "1:00",
        "59:59",
        "1:01:01",
    ]
    assert [progress.rate(r) for r in (None, 312.4, 15_260.0)] == [
        "- tok/s",
        "312 tok/s",
        "15.3k tok/s",
    ]
