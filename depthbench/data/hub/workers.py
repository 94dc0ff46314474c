"""Several processes, each with one job at a time; a process that dies takes nothing with it."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Generic, TypeVar

from depthbench.errors import DataError

J = TypeVar("J")
Work = Callable[[J, Callable[[int], None]], None]


@dataclass
class _Worker(Generic[J]):
    """A process, what it is at, if anything, and how far it said it is."""

    process: SpawnProcess
    connection: Connection
    job: J | None = None
    done: int = 0

    def begin(self, job: J) -> None:
        self.job, self.done = job, 0
        with suppress(OSError):  # it has died; its end is heard of like any other
            self.connection.send(job)

    def end(self) -> None:
        if self.job is not None:
            self.process.terminate()
        self.connection.close()  # at which an idle one ends
        self.process.join()


def run(
    work: Work[J],
    next_job: Callable[[], J | None],
    finished: Callable[[J], None],
    processes: int,
    progress: Callable[[int], None],
) -> None:
    """Does jobs until `next_job` has none while none is running; `finished` is told of each.

    `work`, a function of a module, gets the job and a function to call with how much of it is done;
    `progress` is told the sum over the jobs that are running. With one process the work is done in
    this one. After a failure no job is begun, those that run are waited for, and `DataError` is
    raised; when this process is interrupted or dies the others end at once.
    """
    if processes == 1:
        while (job := next_job()) is not None:
            work(job, progress)
            finished(job)
        return
    workers: list[_Worker[J]] = []
    failure = ""
    try:
        while True:
            idle = [worker for worker in workers if worker.job is None]
            while not failure and (idle or len(workers) < processes):
                if (job := next_job()) is None:
                    break
                if not idle:
                    idle.append(_start(work))
                    workers.append(idle[-1])
                idle.pop().begin(job)
            busy = [worker for worker in workers if worker.job is not None]
            if not busy:
                break
            ready = wait([worker.connection for worker in busy])
            for worker in [worker for worker in busy if worker.connection in ready]:
                failed = _heard(worker, finished)
                if not worker.process.is_alive() and worker.job is None:
                    workers.remove(worker)
                failure = failure or failed
            progress(sum(worker.done for worker in workers))
    finally:
        for worker in workers:
            worker.end()
    if failure:
        raise DataError(failure)


def _heard(worker: _Worker[J], finished: Callable[[J], None]) -> str:
    """Takes one message; returns what went wrong, or nothing."""
    job = worker.job
    assert job is not None, "only who has a job is listened to"
    try:
        message = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join()
        message = _killed(worker.process.exitcode or 0)
    if isinstance(message, int):
        worker.done = message
        return ""
    worker.job, worker.done = None, 0
    if message is None:
        finished(job)
    return message or ""


def _start(work: Work[J]) -> _Worker[J]:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()  # so that its end is seen when the process has ended
    return _Worker(process, ours)


def _child(work: Work[J], connection: Connection) -> None:
    """Answers each job with numbers while it is at it, then with None or with what went wrong."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["USE_TORCH"] = "0"  # `datasets` would import it, for seconds and memory of its own
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            work(job, connection.send)
        except Exception as error:
            connection.send(str(error) or type(error).__name__)
        else:
            connection.send(None)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _killed(code: int) -> str:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return (
        f"a process that tokenised a shard {how}: if memory was short, use fewer processes. Run "
        "the same command again: shards that are finished are not done again"
    )
