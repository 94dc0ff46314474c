"""The kills: whom, at what moment, and what is to happen afterwards."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from depthbench.endurance.watch import Parent, RunningCell, alive
from depthbench.errors import DepthbenchError

VICTIMS = ("cell", "parent", "all")
MOMENTS = ("start-up", "training", "checkpoint", "evaluation", "end")
GRACE_SECONDS = 10.0
"""How long after its parent anything of a matrix may live."""
_POLL_SECONDS, _IDLE_SECONDS = 0.003, 0.05
_START_UP_SECONDS = 1.0
_ROUNDS_WITHOUT_KILL = 3


@dataclass(frozen=True)
class Kill:
    """One SIGKILL. `cell` is the one that was at the moment; `left` are its half-written files."""

    round: int
    victim: str
    moment: str
    cell: str | None
    step: int
    left: list[str]


class Trial:
    """Rounds of the cells in `out/plan.json`, until all kills are made and the last round is over.

    `every` is the mean pause, in seconds, before the next moment is waited for. `orphans` are
    processes that lived for longer than `GRACE_SECONDS` without their parent.
    """

    def __init__(
        self,
        out: Path,
        kills: int,
        *,
        seed: int = 0,
        every: float = 2.0,
        jobs: int = 1,
        say: Callable[[str], object] = print,
    ) -> None:
        self.out, self.wanted, self.every, self.jobs, self.say = out, kills, every, jobs, say
        self.rounds: list[Path] = []
        self.kills: list[Kill] = []
        self.orphans: list[str] = []
        self._draw, kinds = np.random.default_rng(seed).spawn(2)
        self._kinds = _kinds(kinds)
        self._gone: list[tuple[float, Parent]] = []
        self._choose()

    def run(self) -> None:
        """Raises `DepthbenchError` if a moment never comes or a cell fails that nobody killed."""
        while not self.rounds or len(self.kills) < self.wanted:
            self.rounds.append(self.out / f"round-{len(self.rounds) + 1}")
            self._round(self.rounds[-1])
            newest = self.kills[-1].round if self.kills else 0
            if self.wanted and len(self.rounds) - newest >= _ROUNDS_WITHOUT_KILL:
                raise DepthbenchError(
                    f"{_ROUNDS_WITHOUT_KILL} rounds showed no {self._moment} at which to kill "
                    f"({self._victim}): look into {self.rounds[-1]}"
                )
        self._count_orphans(wait=True)

    def _round(self, folder: Path) -> None:
        """Starts the parent until it says that every cell is finished."""
        finished = False
        while not finished:
            before = len(self.kills)
            parent = Parent(self.out / "plan.json", folder, self.jobs)
            try:
                self._accompany(parent)
            finally:
                parent.stop()
                self._gone.append((time.monotonic(), parent))
            code = parent.process.returncode
            finished = code == 0
            if not finished and len(self.kills) == before:
                raise DepthbenchError(
                    f"a matrix that nobody disturbed ended with exit code {code}: see {folder}.log"
                )

    def _accompany(self, parent: Parent) -> None:
        while parent.process.poll() is None:
            parent.look()
            pressing = len(self.kills) < self.wanted and time.monotonic() >= self._pause_ends
            if pressing:
                self._attempt(parent)
            self._count_orphans()
            time.sleep(_POLL_SECONDS if pressing else _IDLE_SECONDS)

    def _attempt(self, parent: Parent) -> None:
        """Kills, if the moment that was drawn is there."""
        seen = parent.moments()
        cell = seen.get(self._moment)
        if self._moment not in seen or (self._victim == "cell" and cell is None):
            return
        # It lasts seconds where the others last milliseconds: it is struck anywhere in it.
        if self._moment == "start-up" and self._draw.random() > _POLL_SECONDS / _START_UP_SECONDS:
            return
        victims = [process for process in self._victims(parent, cell) if alive(process)]
        if not victims:  # it has ended meanwhile
            return
        for process in victims:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(victims, timeout=GRACE_SECONDS)
        name, step = (cell.folder.path.name, cell.newest_record()["step"]) if cell else (None, 0)
        left = cell.half_written() if cell and self._victim != "parent" else []
        kill = Kill(len(self.rounds), self._victim, self._moment, name, step, left)
        self.kills.append(kill)
        self.say(f"{len(self.kills)}/{self.wanted}  {kill.victim} at {kill.moment}  {name or ''}")
        self._choose()

    def _victims(self, parent: Parent, cell: RunningCell | None) -> list[psutil.Process]:
        if self._victim == "cell" and cell:
            processes = cell.processes()
            return [processes[self._draw.integers(len(processes))]] if processes else []
        cells = parent.cells.values() if self._victim == "all" else ()
        return [parent.process, *(process for cell in cells for process in cell.processes())]

    def _choose(self) -> None:
        self._victim, self._moment = next(self._kinds)
        self._pause_ends = time.monotonic() + self._draw.uniform(0, 2 * self.every)

    def _count_orphans(self, wait: bool = False) -> None:
        while self._gone and (wait or time.monotonic() > self._gone[0][0] + GRACE_SECONDS):
            died, parent = self._gone.pop(0)
            while (left := parent.left()) and time.monotonic() <= died + GRACE_SECONDS:
                time.sleep(_IDLE_SECONDS)
            self.orphans += [f"{process.pid} of {parent.process.pid}" for process in left]


def _kinds(draw: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Every victim at every moment in random order, again and again."""
    kinds = [(victim, moment) for victim in VICTIMS for moment in MOMENTS]
    while True:
        yield from (kinds[index] for index in draw.permutation(len(kinds)))
