"""One cell as one job of Slurm: what it asks for, what it starts, and how it ended."""

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from pydantic import Field

from depthbench.config import Frozen
from depthbench.errors import EXIT_FAILED, EXIT_INTERRUPTED, DepthbenchError
from depthbench.executors import Ended, Task
from depthbench.executors.slurm_queue import NEVER, OVER, STARTED, TAKEN_AWAY
from depthbench.folder import FINISHED, CellFolder


class SlurmOptions(Frozen):
    """What Slurm is told of every cell; what is left out has the cluster's default."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time_minutes: int | None = Field(
        None, ge=1, description="of one job; a cell that needs longer goes on in the next"
    )
    array_parallelism: int | None = Field(
        None, ge=1, description="cells of one array that run at once; all by default"
    )
    grace_seconds: int = Field(
        120, ge=1, le=65535, description="that a cell has to save itself after SIGTERM"
    )
    requeues: int = Field(
        10, ge=0, description="times that an interrupted job puts itself back into the queue"
    )
    additional_parameters: dict[str, bool | int | float | str] = Field(
        {}, description="further options of sbatch by long name; they replace what is derived"
    )

    def parameters(self) -> dict[str, object]:
        """The options of sbatch that every cell has, with underscores for dashes."""
        given: dict[str, object | None] = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "time": self.time_minutes,
            # It reaches the steps of a job, which is the cell, and not the script around it.
            "signal": f"TERM@{self.grace_seconds}",
            "requeue": True,
        }
        further = {name.replace("-", "_"): v for name, v in self.additional_parameters.items()}
        return {name: value for name, value in given.items() if value is not None} | further


def needs(task: Task) -> dict[str, object]:
    """The options of sbatch for one cell.

    Memory is rounded up to a power of two, so that most cells of a matrix are one array. That of an
    accelerator is none of which Slurm keeps account; what such a cell has beside is left to it.
    """
    own: dict[str, object] = {"nodes": 1, "ntasks_per_node": 1, "cpus_per_task": task.cores}
    if task.device != "cpu":
        return own | {"gpus_per_node": task.ranks}
    mebibytes = max(1, -(-task.memory_bytes // 2**20))
    return own | {"mem": f"{1 << (mebibytes - 1).bit_length()}M"}


@dataclass(frozen=True)
class Start:
    """What submitit runs on the node. It becomes the cell, so that Slurm's signals reach that.

    Nothing of submitit is left by then: no signal is handled and no result is pickled.
    """

    command: tuple[str, ...]
    log: str
    threads: int

    def __call__(self) -> NoReturn:
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        job, node = os.environ["SLURM_JOB_ID"], os.uname().nodename
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        os.write(log, f"[{now}] cell starts as Slurm job {job} on {node}\n".encode())
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(
            OMP_NUM_THREADS=str(self.threads),
            MKL_NUM_THREADS=str(self.threads),
            PYTHONFAULTHANDLER="1",
            PYTHONUNBUFFERED="1",
        )
        os.execvp(self.command[0], self.command)


@dataclass
class Job:
    """A task in Slurm that has not been returned as ended. Seconds are since the epoch.

    `log` is what Slurm and submitit say of it; the cell's own words are in its folder.
    """

    task: Task
    number: str
    log: Path
    started: float
    state: str = "PENDING"
    over: float | None = None

    def see(self, state: str | None) -> None:
        """`state` is what Slurm says; None if it does not know the job any more."""
        if self.state not in STARTED and state in STARTED:
            self.started = time.time()
        self.state = state or "forgotten"
        if state is not None and state not in OVER and not self.unwanted:
            self.over = None
        elif self.over is None:
            self.over = time.time()

    @property
    def unwanted(self) -> bool:
        """No node can take it."""
        return self.state.startswith(NEVER)

    def ended(self, late: float) -> Ended | None:
        """How the job ended, by what is on disk first. None: it did not, or may not have.

        `late`: seconds in which a result may still come to light, or a node for a job without one.
        """
        if self.over is None:
            return None
        status = _status(self.task)
        expected = status is None or self.unwanted
        if expected and self.state not in TAKEN_AWAY and time.time() - self.over < late:
            return None
        if status in FINISHED:
            return Ended(self.task, 0, self.started)
        hopeless = self.unwanted or self.state == "CANCELLED"
        if self.state in TAKEN_AWAY or (status == "interrupted" and not hopeless):
            return Ended(self.task, EXIT_INTERRUPTED, self.started)
        return Ended(self.task, EXIT_FAILED, self.started, self._reason())

    def _reason(self) -> str:
        if self.state == "forgotten":
            how = "is not known to Slurm any more, and the cell left no result"
        elif self.unwanted:
            how = (
                f"can start on no node: {self.state.removeprefix(NEVER)}. Ask for less time, fewer "
                "ranks or threads, or another partition"
            )
        elif self.state == "CANCELLED":
            how = "was cancelled, though not by depthbench"
        else:
            how = f"ended as {self.state}, and the cell left no result"
        if self.state == "OUT_OF_MEMORY":
            how += (
                f". Planned for it were {self.task.memory_bytes:,} bytes: ask for more, as with "
                "--executor-set additional_parameters.mem=32G, or set a smaller micro_batch_size"
            )
        return f"Slurm job {self.number} {how}. Slurm's own words are in {self.log}"


def _status(task: Task) -> str | None:
    """Of the cell's result, if there is one that can be read."""
    try:
        result = CellFolder(task.folder).result()
    except DepthbenchError:
        return None
    return str(result["status"]) if result else None
