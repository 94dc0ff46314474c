"""The follower: reads the growing files of all cells under a folder and tells a tracker."""

import fcntl
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from depthbench.errors import InputError
from depthbench.folder import FINISHED, CellFolder, find_cells
from depthbench.printable import printable
from depthbench.tracking.kinds import Kind
from depthbench.tracking.points import Point, read_points

BETWEEN_PASSES = 2.0
AFTER_A_FAILURE = 30.0
_SLICE = 0.2
Signature = tuple[tuple[int, int] | None, ...]


class Run(Protocol):
    """One cell in a tracker. What it raises concerns this cell alone."""

    def update(self, points: Sequence[Point]) -> None:
        """Brings the tracker to `points`, all that the cell's files say by now.

        They may be fewer than before: who resumes from a checkpoint runs some steps again.
        """

    def close(self, done: bool) -> None:
        """Nothing more comes of this cell for now; `done` if it ended as it should."""


OpenRun = Callable[[CellFolder, Path], Run]
"""Of a cell, and of the folder where the tracker keeps what it has of it."""


def follow(
    root: Path, kind: Kind, *, once: bool = True, stop: Callable[[], bool] = lambda: False
) -> tuple[int, int]:
    """Tells the tracker of every cell under `root`; returns how many cells, and how many failed.

    What the tracker keeps lies in `root/<kind>`. With `once` false it goes on until `stop` says so,
    and tries a cell again after a failure. Raises `InputError` if `root` is no folder or is
    followed to the same tracker by another process, and with `once` if it holds no cell.
    """
    if not root.is_dir():
        raise InputError(f"{root} is not a folder: name a result folder, such as runs/quick")
    if once and next(find_cells(root), None) is None:
        raise InputError(f"no cell under {root}: run a suite first")
    place = root / kind
    _refuse_links(place, root)
    place.mkdir(exist_ok=True)
    with _alone(place):
        follower = _Follower(root, place, _opener(kind))
        while not (once or stop()):
            follower.look()
            _pause(stop)
        follower.look(last=True)
        follower.close()
    return len(follower.seen), len(follower.failed)


def wait_for(root: Path, stop: Callable[[], bool]) -> bool:
    """Returns whether the folder `root` is there, which it need not be yet, before `stop`."""
    while not root.is_dir() and not stop():
        time.sleep(_SLICE)
    return root.is_dir()


@dataclass
class _Follower:
    root: Path
    place: Path
    open_run: OpenRun
    seen: dict[Path, Signature | None] = field(default_factory=dict)
    failed: dict[Path, float] = field(default_factory=dict)
    runs: dict[Path, Run] = field(default_factory=dict)

    def look(self, last: bool = False) -> None:
        """Tells what is new of every cell; one that failed has to wait, but not for the `last`."""
        for folder in find_cells(self.root):
            path, signature = folder.path, _signature(folder)
            waits = time.monotonic() < self.failed.get(path, 0.0) + AFTER_A_FAILURE
            if self.seen.get(path) == signature or (path in self.failed and waits and not last):
                continue
            self.seen[path] = None
            with self._contained(path):
                self._tell(folder)
                self.seen[path] = signature
                self.failed.pop(path, None)

    def _tell(self, folder: CellFolder) -> None:
        path = folder.path
        points = read_points(folder)
        if path not in self.runs:
            own = self.place / (path.name if path == self.root else path.relative_to(self.root))
            _refuse_links(own, self.root)
            self.runs[path] = self.open_run(folder, own)
        self.runs[path].update(points)
        result = folder.result()
        if result is not None and result["status"] in FINISHED:
            self.runs.pop(path).close(done=result["status"] == "done")

    def close(self) -> None:
        for path in list(self.runs):
            with self._contained(path):
                self.runs.pop(path).close(done=False)

    @contextmanager
    def _contained(self, path: Path) -> Iterator[None]:
        """Whatever a tracker raises is told, and costs no other cell anything."""
        try:
            yield
        except Exception:
            self.failed[path] = time.monotonic()
            told = f"{path} could not be told:\n{traceback.format_exc()}"
            print(printable(told, keep="\n"), flush=True)
            if run := self.runs.pop(path, None):
                with suppress(Exception):
                    run.close(done=False)


def _opener(kind: Kind) -> OpenRun:
    if kind == "tensorboard":
        from depthbench.tracking.tensorboard import TensorBoardRun

        return TensorBoardRun
    from depthbench.tracking.wandb import WandbRun

    return WandbRun


def _refuse_links(place: Path, root: Path) -> None:
    """In someone else's folder a link could lead to anything of one's own."""
    if place.resolve() != root.resolve() / place.relative_to(root):
        raise InputError(f"{place} leads out of {root} through a link: remove the link")


def _signature(folder: CellFolder) -> Signature:
    """Changes whenever one of the files does."""
    files = (folder.metrics_path, folder.layers_path, folder.result_path)
    signature: list[tuple[int, int] | None] = []
    for file in files:
        try:
            found = file.stat()
        except OSError:
            signature.append(None)
        else:
            signature.append((found.st_mtime_ns, found.st_size))
    return tuple(signature)


def _pause(stop: Callable[[], bool]) -> None:
    until = time.monotonic() + BETWEEN_PASSES
    while time.monotonic() < until and not stop():
        time.sleep(_SLICE)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Two followers would tell everything twice. The lock dies with its process."""
    descriptor = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{place.parent} is followed to {place.name} by another process already"
            ) from None
        yield
    finally:
        os.close(descriptor)
