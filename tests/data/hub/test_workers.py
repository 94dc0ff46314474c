"""Processes that raise, that are killed, and what becomes of the others."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from depthbench.data.hub import workers
from depthbench.errors import DataError
from tests.data.hub.kit import running

Job = tuple[str, Path]


def work(job: Job, progress: Callable[[int], None]) -> None:
    """Leaves a file, unless it is told to fail or to be killed."""
    what, path = job
    progress(1)
    if what == "raise":
        raise ValueError("this one cannot be done")
    if what == "hang":
        path.write_text(str(os.getpid()))
        time.sleep(120)
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)
    path.touch()


def attempt(folder: Path, jobs: list[str], processes: int) -> tuple[list[str], list[int]]:
    """Which jobs are finished, and what progress was told."""
    left = iter([(what, folder / str(number)) for number, what in enumerate(jobs)])
    finished: list[str] = []
    told: list[int] = []
    workers.run(
        *(work, lambda: next(left, None), lambda job: finished.append(job[1].name)),
        *(processes, told.append),
    )
    return finished, told


def test_every_job_is_done_once(tmp_path: Path) -> None:
    finished, told = attempt(tmp_path, ["do"] * 5, 2)
    assert sorted(finished) == sorted(path.name for path in tmp_path.iterdir()) == list("01234")
    assert max(told) == 2  # both at work
    assert told[-1] == 0


@pytest.mark.parametrize(
    ("failure", "message"),
    [("raise", "this one cannot be done"), ("die", r"killed by signal 9.*fewer processes")],
)
def test_a_failure_ends_it_once_the_others_have_finished(
    failure: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        attempt(tmp_path, [failure, *["do"] * 60], 2)
    done = [path.name for path in tmp_path.iterdir()]
    assert "1" in done
    assert len(done) < 60  # no more were begun


def hang(folder: Path) -> None:
    """Two jobs that say nothing for two minutes, as a download may."""
    attempt(folder, ["hang", "hang"], 2)


def test_no_process_outlives_the_one_that_began_it(tmp_path: Path) -> None:
    script = "import sys, tests.data.hub.test_workers as t; t.hang(t.Path(sys.argv[1]))"
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    parent = subprocess.Popen([sys.executable, "-c", script, tmp_path], cwd=root, env=environment)
    try:
        deadline = time.monotonic() + 120
        while len(children := sorted(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(children) == 2
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 10
    pids = [int(child.read_text()) for child in children]
    while any(map(running, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(running, pids))
