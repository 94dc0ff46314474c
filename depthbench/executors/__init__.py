"""What starts cells: this machine, or an engine that people already operate.

An executor only starts the cell command on folders. Whether a cell is done is read from the
folder, so an executor may die, be replaced or start a cell again without harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Task:
    """One cell to start, with what it is expected to need.

    `ranks` processes train it on one machine, each with `threads` cores and, where `device` is an
    accelerator, one of these. `memory_bytes` is of all of them.
    """

    folder: Path
    device: str
    ranks: int
    threads: int
    memory_bytes: int
    seconds: float

    @property
    def cores(self) -> int:
        """Cores that all ranks use together."""
        return self.ranks * self.threads


@dataclass(frozen=True)
class Ended:
    """A task whose process is gone.

    A negative `returncode` is the signal that ended it; `reason` is what the engine knows beyond
    that; `started` is in seconds since the epoch.
    """

    task: Task
    returncode: int
    started: float
    reason: str = ""


class Executor(Protocol):
    """The life of a matrix: `submit`, then `poll` until every task has ended.

    After `stop` it can be used again: tuning and scored cells share one.
    """

    @property
    def slots(self) -> int:
        """About how many cells run at once; used to estimate the time left."""

    def submit(self, tasks: Sequence[Task]) -> None:
        """Takes tasks, to be started in this order as room allows."""

    def poll(self) -> list[Ended]:
        """Starts what can start and returns at once with what ended since the last call."""

    def running(self) -> list[Task]:
        """What has started and not yet been returned by `poll`."""

    def stop(self) -> None:
        """Starts nothing more, asks running cells to save and end, and returns when all have."""
