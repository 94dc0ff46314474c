"""The part of the Ray executor that runs on a node: one cell, as on any single machine."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from depthbench.errors import EXIT_INTERRUPTED
from depthbench.executors import Task
from depthbench.executors.local import LocalExecutor
from depthbench.folder import CellFolder

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Start:
    """How a cell is started on a node. `grace` is in seconds."""

    command: tuple[str, ...]
    plugins: tuple[Path, ...]
    grace: float


def run_cell(task: Task, start: Start) -> int:
    """Runs the cell and returns the exit code of its process.

    `ray.cancel`, or the loss of the worker's node, asks it to save and end, and kills it after the
    grace. Raises OSError if it could not be started.
    """
    command = start.command or (sys.executable, "-P", "-m", "depthbench", "cell")
    local = LocalExecutor(plugins=start.plugins, command=command, grace=start.grace)
    raylet = os.getppid()
    with _cancellation() as stopped:
        _wait_for_predecessor(CellFolder(task.folder), start.grace, stopped)
        local.submit([task])
        try:
            while not (ended := local.poll()):
                if stopped() or os.getppid() != raylet:
                    return EXIT_INTERRUPTED
                time.sleep(_POLL_SECONDS)
        finally:
            local.stop()
    if ended[0].reason:
        raise OSError(ended[0].reason)
    return ended[0].returncode


def _wait_for_predecessor(folder: CellFolder, grace: float, stopped: Callable[[], bool]) -> None:
    """A cell whose worker was lost may still be saving, and holds the folder until it has."""
    deadline = time.monotonic() + grace
    while folder.running() and time.monotonic() < deadline and not stopped():
        time.sleep(_POLL_SECONDS)


@contextmanager
def _cancellation() -> Iterator[Callable[[], bool]]:
    """Whether `ray.cancel` was called, which looks like SIGINT from here.

    An exception could come between the start of a cell and the moment it is remembered.
    """
    asked: list[int] = []

    def request(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    previous = signal.signal(signal.SIGINT, request)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, previous)
