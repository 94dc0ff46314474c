"""A cell that was interrupted, though nobody stopped the matrix, is started again."""

import io
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from depthbench import matrix
from depthbench.executors import Ended, Task
from depthbench.executors.local import LocalExecutor
from depthbench.folder import write_json
from tests.executors.kit import fake, run_beside
from tests.matrix.kit import Bench, planned, wait_until


class Interrupter:
    """Every cell it is given ends with code 75 at the next of `steps`, and with these as done."""

    slots = 1

    def __init__(self, steps: Sequence[int], saves: bool = True) -> None:
        self.steps = list(steps)
        self.saves = saves
        self.num_started = 0
        self.new: list[Task] = []

    def submit(self, tasks: Sequence[Task]) -> None:
        self.new.extend(tasks)

    def poll(self) -> list[Ended]:
        ended = []
        for task in self.new:
            self.num_started += 1
            over = not self.steps
            step = 99 if over else self.steps.pop(0)
            (task.folder / "metrics.jsonl").write_text(f'{{"step": {step}, "loss": 1.0}}\n')
            if over or self.saves:
                result = {"schema": 1, "status": "done" if over else "interrupted", "step": step}
                more = {"measures": {"loss": 1.0}, "ledger": {"tokens_per_second": None}}
                write_json(task.folder / "result.json", result | more)
            ended.append(Ended(task, 0 if over else 75, time.time()))
        self.new = []
        return ended

    def running(self) -> list[Task]:
        return []

    def stop(self) -> None:
        pass


def run(tmp_path: Path, executor: Interrupter) -> tuple[int, str]:
    written = io.StringIO()
    console = Console(file=written, width=200)
    return matrix.run([planned("good")], tmp_path, console=console, executor=executor), (
        written.getvalue()
    )


def test_as_often_as_it_comes_further(tmp_path: Path) -> None:
    for saves in (True, False):
        executor = Interrupter([1, 1, 2, 3, 3, 4, 5, 6, 7], saves)
        left, text = run(tmp_path / str(saves), executor)
        assert (left, executor.num_started) == (0, 10)
        assert "interrupted at step 7, to be started again" in text


def test_not_without_end_where_it_comes_no_further(tmp_path: Path) -> None:
    """One that fell behind, as it went on from an older checkpoint, has not come further either."""
    executor = Interrupter([5, 6, 4, 6, 7, 8])
    left, text = run(tmp_path, executor)
    assert (left, executor.num_started) == (1, 4)
    assert "3 times without getting beyond step 6" in text
    assert "The same command runs them again." in text


def test_a_process_that_someone_asks_to_end_goes_on(bench: Bench) -> None:
    cell = planned("long", steps=30)

    def interrupt() -> None:
        wait_until(lambda: len(bench.steps(cell)) > 2)
        os.kill(bench.pid(cell), signal.SIGTERM)

    executor = LocalExecutor(command=fake(bench))
    left, text = run_beside([cell], bench.out, executor, interrupt)
    assert left == 0
    assert bench.steps(cell) == list(range(1, 31))
    assert bench.folder(cell).log_path.read_text().count("begins") == 2
    assert "to be started again" in text
