"""Starting the ranks of a cell on this machine, as `torchrun` does, and ending them together."""

import os
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from depthbench.executors.local import guarded
from depthbench.train.ranks import environment

LOOPBACK = "127.0.0.1"
AT_ONCE_SECONDS = 15
SAVING_SECONDS = 3600
_FAILURES = "DEPTHBENCH_FAILURES"


class RanksError(Exception):
    """A rank has failed; the message is that of the first."""


class RanksStoppedError(Exception):
    """This process was asked to stop, and its ranks have ended."""


def started_here() -> bool:
    """Whether this process is a rank of `start_ranks`, which judges by what is in the folder."""
    return _FAILURES in os.environ


def tell(message: str) -> None:
    """From a rank that fails: when one ends, the others fail, too, for want of it."""
    if started_here():
        place = Path(os.environ[_FAILURES]) / f"{time.time_ns()}-{environment().rank}"
        place.write_text(message, encoding="utf-8")


def start_ranks(folder: Path, num: int, plugins: Sequence[Path]) -> None:
    """Runs the cell command in `num` processes and returns when all have ended well.

    One that fails ends the others. They find each other at a port that the system chooses, so that
    any number of cells can run on one machine. Raises `RanksError` and `RanksStoppedError`.
    """
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{LOOPBACK}:0",
        local_addr=LOOPBACK,
        max_restarts=0,  # a cell is started again by whoever starts cells
        **_patient(),
    )
    loaded = [part for path in plugins for part in ("--plugin", str(path.resolve()))]
    command = ("-P", "-m", "depthbench", "cell", str(folder), *loaded)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    os.environ.update(guarded())
    with TemporaryDirectory() as told:
        os.environ[_FAILURES] = told
        try:
            elastic_launch(config, sys.executable)(*command)
        except SignalException as stopped:
            raise RanksStoppedError from stopped
        except ChildFailedError as failed:
            raise RanksError(_cause(failed, Path(told))) from failed


def _patient() -> dict[str, Any]:
    """Ranks that save a large checkpoint are left the time; whoever starts cells has a limit."""
    known = {field.name for field in fields(LaunchConfig)}
    return {"shutdown_timeout": SAVING_SECONDS} if "shutdown_timeout" in known else {}


def _cause(failed: ChildFailedError, told: Path) -> str:
    """A rank that was killed could not say so; else whoever spoke first."""
    first = failed.get_first_failure()[1].timestamp
    for rank, failure in failed.failures.items():
        # Those that are killed for the failure of another end half a minute later.
        at_once = failure.timestamp - first < AT_ONCE_SECONDS
        if at_once and failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM:
            return (
                f"rank {rank} was ended by signal {-failure.exitcode}: most likely the machine ran "
                "out of memory. Set a smaller micro_batch_size, activation_checkpointing or "
                "ranks.mode = fsdp"
            )
    if said := sorted(told.iterdir()):
        return f"rank {said[0].name.rpartition('-')[2]}: {said[0].read_text(encoding='utf-8')}"
    rank, failure = failed.get_first_failure()
    return f"rank {rank} ended with exit code {failure.exitcode}"
