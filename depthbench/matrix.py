"""A matrix is a list of cells, each a folder: run what is not finished, and contain what fails."""

import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from depthbench.errors import EXIT_INTERRUPTED, DepthbenchError, InputError
from depthbench.executors import Ended, Executor, Task
from depthbench.executors.failure import contain
from depthbench.executors.local import LocalExecutor
from depthbench.folder import FINISHED, CellFolder, Status, find_cells, last_training_record
from depthbench.progress import Progress, Track, clock, labels, rate, say

if TYPE_CHECKING:
    from depthbench.plan import PlannedCell

_POLL_SECONDS = 0.1
_FRUITLESS = 3  # interruptions in a row without a new step, after which a cell is left alone
_STATUS_KEYS = (
    *("cell", "design", "shape", "seed", "status", "step", "steps"),
    *("loss", "tokens_per_second", "eta", "error"),
)


def run(
    cells: Sequence["PlannedCell"],
    out: Path,
    jobs: int | None = None,
    plugins: Sequence[Path] = (),
    console: Console | None = None,
    executor: Executor | None = None,
) -> int:
    """Runs the cells that are not finished, in folders under `out`; returns how many still are not.

    They are started by `executor`, and without one on this machine. A diverged cell is finished;
    one that was interrupted, though not by the user, is started again as long as it comes further.
    Refused before anything is written: a folder of a different experiment (`InputError`), too
    little disk (`DepthbenchError`). On SIGINT or SIGTERM the cells save and end, and
    `KeyboardInterrupt` is raised.
    """
    console = console or Console()
    executor = executor or LocalExecutor(jobs, plugins)
    matrix = _Matrix(cells, out, console, executor)
    matrix.prepare()
    return matrix.run()


def status(root: Path) -> list[dict[str, Any]]:
    """One line per cell under `root`: what it is, how far it is, and its losses and rates.

    `loss` is the validation loss of a done cell (nats per token) and else the newest training loss;
    `eta` is in seconds. A damaged cell has status "failed" and the damage as its `error`.
    """
    return [_status(root, folder) for folder in find_cells(root)]


class _Matrix:
    def __init__(
        self, cells: Sequence["PlannedCell"], out: Path, console: Console, executor: Executor
    ) -> None:
        self.out = out
        self.console = console
        self.executor = executor
        self.cells = {out / cell.config.folder_name(): cell for cell in cells}
        names = labels([cell.config for cell in self.cells.values()])
        self.tracks = {
            path: Track(CellFolder(path), cell.config, cell.seconds, name)
            for (path, cell), name in zip(self.cells.items(), names, strict=True)
        }
        self.reached: dict[Path, int] = {}
        self.fruitless: Counter[Path] = Counter()

    def prepare(self) -> None:
        for track in self.tracks.values():
            track.folder.check(track.config)
            if (state := _state(track.folder)) in FINISHED:
                track.status, track.share = state, 1.0
        self.check_disk()
        for track in self.tracks.values():
            track.folder.create(track.config)

    def check_disk(self) -> None:
        """The sum of what unfinished cells may still write, against what is free."""
        needed = sum(
            max(0, self.cells[path].disk_bytes - _size(path))
            for path, track in self.tracks.items()
            if track.status not in FINISHED
        )
        existing = next(p for p in (self.out, *self.out.resolve().parents) if p.exists())
        free = shutil.disk_usage(existing).free
        if needed > free:
            raise DepthbenchError(
                f"{self.out}: the cells need {needed:,} bytes of disk and {free:,} are free: "
                "make room, choose another output folder, or run fewer cells"
            )

    def run(self) -> int:
        """Everything, until each cell has ended or the user stops it."""
        open_paths = [path for path, track in self.tracks.items() if track.status not in FINISHED]
        if skipped := len(self.tracks) - len(open_paths):
            say(self.console, f"{skipped} of {len(self.tracks)} cells are finished already")
        # Longest first, so that no long cell is left alone at the end.
        held = sorted(open_paths, key=lambda path: -self.cells[path].seconds)
        submitted: set[Path] = set()
        executor = self.executor
        with _stop_signals() as stop:
            try:
                with Progress(self.console, self.tracks) as progress:
                    while held or submitted:
                        ready = [path for path in held if not CellFolder(path).running()]
                        held = [path for path in held if path not in ready]
                        ready = [path for path in ready if self.claim(path, progress)]
                        executor.submit([self.task(path) for path in ready])
                        submitted.update(ready)
                        for ended in executor.poll():
                            path = ended.task.folder
                            submitted.remove(path)
                            if not self.settle(ended, progress):
                                held.append(path)
                        running = [task.folder for task in executor.running()]
                        progress.refresh(running, executor.slots)
                        if stop.is_set():
                            progress.say("stopping: running cells save their state")
                            break
                        time.sleep(_POLL_SECONDS)
            finally:
                executor.stop()
        return self.conclude(interrupted=stop.is_set())

    def task(self, path: Path) -> Task:
        cell = self.cells[path]
        config = cell.config
        ranks, threads = config.ranks.num, config.threads
        return Task(path, config.device, ranks, threads, cell.memory_bytes, cell.seconds)

    def claim(self, path: Path, progress: Progress) -> bool:
        """Clears what an earlier attempt left as its result; false if the cell is finished."""
        folder = CellFolder(path)
        try:
            if folder.finished:
                progress.ended(path, folder.status(), "by another process")
                return False
        except DepthbenchError as error:
            progress.say(f"{error}. The cell runs again")
        folder.result_path.unlink(missing_ok=True)
        return True

    def settle(self, ended: Ended, progress: Progress) -> bool:
        """Shows how a cell ended. False: another process runs it, or it is to go on."""
        path = ended.task.folder
        folder = CellFolder(path)
        if folder.running():
            return False
        try:
            result = folder.result()
            if result is None and ended.returncode == EXIT_INTERRUPTED:
                result = {"status": "interrupted"}
            result = result or contain(folder, ended)
        except (OSError, DepthbenchError) as error:  # a full disk, a damaged result
            result = {"status": "failed", "error": str(error)}
        if ended.returncode == EXIT_INTERRUPTED:
            if self.advances(path, result.get("step", 0)):
                text = f"interrupted at step {self.reached[path]}, to be started again"
                progress.ended(path, "waiting", text)
                return False
            text = f"{_FRUITLESS} times without getting beyond step {self.reached[path]}"
            result = {**result, "error": text}
        text = _outcome(result, time.time() - ended.started) or ended.reason
        progress.ended(path, result["status"], text)
        return True

    def advances(self, path: Path, saved: int) -> bool:
        """Whether a cell that was interrupted came further, or has not yet often failed to.

        `saved` is the step of its result. One that was ended before it wrote it has its log only.
        """
        logged = last_training_record(CellFolder(path).metrics_path)
        step = max(saved, logged["step"] if logged else 0)
        if step > self.reached.get(path, -1):
            self.reached[path], self.fruitless[path] = step, 0
        self.fruitless[path] += 1
        return self.fruitless[path] < _FRUITLESS

    def conclude(self, interrupted: bool) -> int:
        """Says what is finished, by what is on disk, and returns how many cells are not."""
        states = {path: _state(track.folder) for path, track in self.tracks.items()}
        remaining = [path for path, state in states.items() if state not in FINISHED]
        count, finished = len(states), len(states) - len(remaining)
        if interrupted:
            say(
                self.console,
                f"Stopped with {finished} of {count} cells finished. The others keep what they "
                "have: the same command goes on from there.",
            )
            raise KeyboardInterrupt
        diverged = sum(state == "diverged" for state in states.values())
        say(
            self.console,
            f"{finished - diverged} of {count} cells done, {diverged} diverged, "
            f"{len(remaining)} not finished",
        )
        for path in remaining:
            say(self.console, f"{self.tracks[path].label}: see {CellFolder(path).log_path}")
        if remaining:
            say(self.console, "The same command runs them again.")
        return len(remaining)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM set the event; a second one raises. Where they are ignored they stay so.

    Setting an event, rather than raising, leaves no moment in which a started cell is forgotten.
    """
    stop = threading.Event()

    def request(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                previous[number] = signal.signal(number, request)
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _state(folder: CellFolder) -> Status:
    """As `folder.status()`, but damage is a failed cell; a foreign schema still raises."""
    try:
        return folder.status()
    except InputError:
        raise
    except DepthbenchError:
        return "failed"


def _outcome(result: dict[str, Any], seconds: float) -> str:
    """What the line of an ended cell says."""
    if result["status"] == "done":
        loss, speed = result["measures"]["loss"], result["ledger"]["tokens_per_second"]
        return f"loss {loss:.4f}  {rate(speed)}  {clock(seconds)}"
    if result["status"] == "diverged":
        return f"at step {result['diverged_step']}  {clock(seconds)}"
    return str(result.get("error") or "").partition("\n")[0]


def _status(root: Path, folder: CellFolder) -> dict[str, Any]:
    line: dict[str, Any] = dict.fromkeys(_STATUS_KEYS)
    line["cell"] = folder.path.name if folder.path == root else str(folder.path.relative_to(root))
    try:
        config = folder.config()
        line |= {
            "design": config.design.name,
            "shape": f"L{config.shape.layers} d{config.shape.d_model}",
            "seed": config.seed,
            "step": 0,
            "steps": config.steps,
        }
        state, result = folder.status(), folder.result()
    except DepthbenchError as error:
        return line | {"status": "failed", "error": str(error)}
    record = last_training_record(folder.metrics_path) or {}
    line |= {key: record[key] for key in ("step", "loss", "tokens_per_second") if key in record}
    line["status"] = state
    if state == "running":
        line["eta"] = record.get("eta")
    elif result:
        line |= {"step": result.get("step"), "error": result.get("error")}
        if state == "done":
            line["loss"] = (result.get("measures") or {}).get("loss")
    return line


def _size(path: Path) -> int:
    size = 0
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):  # another process replaces its checkpoint
            size += file.stat().st_size
    return size
