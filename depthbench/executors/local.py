"""Cells as processes of this machine: as many at once as cores and memory allow."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Thread

import psutil

from depthbench.errors import EXIT_INTERRUPTED, InputError
from depthbench.executors import Ended, Task

_PARENT = "DEPTHBENCH_PARENT"
_PR_SET_PDEATHSIG = 1


@cache
def watch_parent() -> Callable[[], bool]:
    """For the cell command to call first: a cell never outlives the matrix that started it.

    On Linux the kernel sends SIGTERM when the parent dies. Elsewhere the returned function tells
    whether the parent still lives, to be asked between steps. Without a parent it is always true.
    """
    # Taken out of the environment: what the cell starts has another parent.
    parent = int(os.environ.pop(_PARENT, "0"))
    if not parent:
        return lambda: True
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the request
        os.kill(os.getpid(), signal.SIGTERM)
    return lambda: os.getppid() == parent


@cache
def end_with_parent(parent_alive: Callable[[], bool], seconds: float) -> None:
    """Ends this process `seconds` after its parent, whatever it waits for by then.

    It is asked to end at once, but sees that only between two steps, and these may be long.
    """

    def wait() -> None:
        while parent_alive():
            time.sleep(0.5)
        time.sleep(seconds)
        os._exit(EXIT_INTERRUPTED)

    Thread(target=wait, daemon=True).start()


def guarded() -> dict[str, str]:
    """What a child needs in its environment so that `watch_parent` ends it with this process."""
    return {_PARENT: str(os.getpid())}


@dataclass(frozen=True)
class _Running:
    task: Task
    process: subprocess.Popen[bytes]
    started: float


class LocalExecutor:
    """Each cell in its own process and session, so that Ctrl-C reaches the matrix alone.

    `jobs` replaces the limit by cores (and the rule that an accelerator serves one cell at a time).
    The estimated memory of running cells stays within what was available at the start; one cell
    always runs. Memory is in bytes, `grace` in seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        jobs: int | None = None,
        plugins: Sequence[Path] = (),
        *,
        command: Sequence[str] = (sys.executable, "-P", "-m", "depthbench", "cell"),
        cores: int | None = None,
        memory_bytes: int | None = None,
        grace: float = 20.0,
    ) -> None:
        if jobs is not None and jobs < 1:
            raise InputError(f"jobs = {jobs}: at least one cell has to run at a time")
        self._jobs = jobs
        self._command = tuple(command)
        self._plugins = [part for path in plugins for part in ("--plugin", str(path.resolve()))]
        self._cores = cores or available_cores()
        self._memory = memory_bytes or psutil.virtual_memory().available
        self._grace = grace
        self._queue: list[Task] = []
        self._running: list[_Running] = []
        self._not_started: list[Ended] = []

    @property
    def slots(self) -> int:
        cores = max((task.cores for task in self._queue + self.running()), default=1)
        return self._jobs or max(1, self._cores // cores)

    def submit(self, tasks: Sequence[Task]) -> None:
        self._queue.extend(tasks)

    def poll(self) -> list[Ended]:
        ended = self._reap()
        while task := next(filter(self._fits, self._queue), None):
            self._queue.remove(task)
            self._start(task)
        ended += self._not_started
        self._not_started = []
        return ended

    def running(self) -> list[Task]:
        return [running.task for running in self._running]

    def stop(self) -> None:
        self._queue.clear()
        for running in self._running:
            running.process.terminate()
        deadline = time.monotonic() + self._grace
        try:
            while self._running and time.monotonic() < deadline:
                self._reap()
                time.sleep(0.05)
        finally:
            for running in self._running:
                _kill_session(running.process)
                running.process.wait()
            self._running.clear()

    def _fits(self, task: Task) -> bool:
        running = self.running()
        if not running:
            return True
        if sum(other.memory_bytes for other in running) + task.memory_bytes > self._memory:
            return False
        if self._jobs is not None:
            return len(running) < self._jobs
        if task.device != "cpu" and task.device in {other.device for other in running}:
            return False
        return sum(other.cores for other in running) + task.cores <= self._cores

    def _start(self, task: Task) -> None:
        environment = os.environ | {
            "OMP_NUM_THREADS": str(task.threads),
            "MKL_NUM_THREADS": str(task.threads),
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
            **guarded(),
        }
        started = time.time()
        try:
            with open(task.folder / "log.txt", "ab", buffering=0) as log:
                log.write(f"[{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC] cell starts\n".encode())
                process = subprocess.Popen(
                    [*self._command, str(task.folder), *self._plugins],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:  # no memory for a process, no room for a log
            reason = f"the cell could not be started: {error}"
            self._not_started.append(Ended(task, os.EX_OSERR, started, reason))
        else:
            self._running.append(_Running(task, process, started))

    def _reap(self) -> list[Ended]:
        ended = [running for running in self._running if running.process.poll() is not None]
        for running in ended:
            self._running.remove(running)
            _kill_session(running.process)  # what the cell left behind
        return [Ended(r.task, r.process.returncode, r.started) for r in ended]


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
