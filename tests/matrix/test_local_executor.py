"""Which cells run at once, and what each process is given."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from depthbench.errors import InputError
from depthbench.executors import Ended, Task
from depthbench.executors.local import LocalExecutor
from tests.matrix.kit import alive, wait_until


def tasks(path: Path, *memory: int, threads: int = 1, device: str = "cpu") -> list[Task]:
    folders = [path / str(number) for number in range(len(memory))]
    for folder in folders:
        folder.mkdir()
    return [
        Task(folder, device, 1, threads, size, 1.0)
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
