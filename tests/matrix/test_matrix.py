"""The matrix: what fails is contained, what is finished is left alone, and what it says."""

import io
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from depthbench import matrix
from depthbench.config import CellConfig
from depthbench.errors import DepthbenchError, InputError
from depthbench.executors import Ended, Task
from depthbench.folder import CellFolder, read_result, write_json
from tests.matrix.kit import Bench, planned, wait_until


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
