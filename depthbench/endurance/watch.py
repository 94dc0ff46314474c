"""A matrix seen from outside: its processes, and what each cell is at by what lies on disk."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from depthbench.config import CellConfig
from depthbench.folder import CellFolder

COMMAND = (sys.executable, "-P", "-m", "depthbench.endurance")
_MARK = "DEPTHBENCH_ENDURANCE"
_LOOK_SECONDS = 0.05


@dataclass
class RunningCell:
    """`since` is when it was first seen, in seconds since the epoch."""

    process: psutil.Process
    folder: CellFolder
    config: CellConfig
    since: float

    def moment(self) -> str:
        """What it is at, by what it has written and what not yet."""
        if not _written(self.folder.metrics_path, self.since):
            return "start-up"
        if self.half_written():
            return "checkpoint"
        record = self.newest_record()
        step, steps, points = record["step"], self.config.steps, self.config.evaluation.points
        if "evaluation" in record:
            return "end" if step == steps else "training"
        due = step * points // steps > max(0, step - 1) * points // steps
        return "evaluation" if due else "training"

    def processes(self) -> list[psutil.Process]:
        """Its own, and that of every rank if it has several."""
        if self.config.ranks.num == 1:  # a look for children lasts as long as some moments
            return [self.process]
        with suppress(psutil.NoSuchProcess):
            return [self.process, *self.process.children(recursive=True)]
        return []

    def half_written(self) -> list[str]:
        """Names of what it has begun to write aside as a checkpoint."""
        asides = self.folder.checkpoints_path.glob(".*")
        return [path.name for path in asides if _written(path, self.since)]

    def newest_record(self) -> dict[str, Any]:
        """Of its metrics; one of step 0 if there is none."""
        with suppress(FileNotFoundError, IndexError, ValueError):
            lines = self.folder.metrics_path.read_bytes().split(b"\n")
            record: dict[str, Any] = json.loads(lines[-2])  # the last one is empty or torn
            return record
        return {"step": 0}


class Parent:
    """The process that runs the matrix of `plan` in `folder`, and the cells it has running."""

    def __init__(self, plan: Path, folder: Path, jobs: int) -> None:
        self.mark = uuid4().hex
        self.cells: dict[int, RunningCell] = {}
        self._begun = self._between = False
        self._looked = 0.0
        with open(f"{folder}.log", "ab") as log:
            self.process = psutil.Popen(
                [*COMMAND, "matrix", str(plan), str(folder), str(jobs)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {_MARK: self.mark},
                start_new_session=True,
            )

    def look(self) -> None:
        """Takes note of cells that have come and gone; not more often than is worth its cost."""
        if time.monotonic() < self._looked + _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        with suppress(psutil.NoSuchProcess):
            children = {child.pid: child for child in self.process.children() if alive(child)}
            new = {pid: _cell(children[pid]) for pid in children.keys() - self.cells.keys()}
            come = {pid: cell for pid, cell in new.items() if cell}
            stay = {pid: cell for pid, cell in self.cells.items() if pid in children}
            self._begun = self._begun or bool(come)
            self._between = not come and (self._between or len(stay) < len(self.cells))
            self.cells = stay | come

    def moments(self) -> dict[str, RunningCell | None]:
        """What there is to interrupt, and a cell that is at it unless it is the parent alone."""
        seen: dict[str, RunningCell | None] = {} if self._begun else {"start-up": None}
        seen |= {"end": None} if self._between else {}
        return seen | {cell.moment(): cell for cell in self.cells.values()}

    def left(self) -> list[psutil.Process]:
        """What was started by it or by its cells, and lives."""
        return [process for process in psutil.process_iter() if _carries(process, self.mark)]

    def stop(self) -> None:
        """Returns when it is gone; if it still runs it is asked to end first."""
        with suppress(psutil.NoSuchProcess):
            self.process.terminate()
        self.process.wait()


def _cell(process: psutil.Process) -> RunningCell | None:
    """What the process runs; None between its fork and its exec."""
    folder = CellFolder(Path(process.cmdline()[-1]))
    if not folder.config_path.exists():
        return None
    return RunningCell(process, folder, folder.config(), time.time())


def _written(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since
    except FileNotFoundError:
        return False


def alive(process: psutil.Process) -> bool:
    """Neither gone nor a zombie that waits for its parent."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _carries(process: psutil.Process, mark: str) -> bool:
    """Environments are inherited, whoever the parent is by now."""
    try:
        return process.environ().get(_MARK) == mark and alive(process)
    except psutil.Error:  # it is gone, or another user's
        return False
