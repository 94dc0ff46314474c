"""Cells as files and as processes, whatever the form of their checkpoints."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from depthbench.folder import CellFolder

SAVING_AFTER_EVERY_STEP = (sys.executable, "-P", "-m", "depthbench.endurance", "cell")
SAVING_EVERY_MINUTE = (sys.executable, "-P", "-m", "depthbench", "cell")


@contextmanager
def start_cell(folder: CellFolder) -> Iterator[subprocess.Popen[bytes]]:
    """The cell command by itself; killed on leaving if it still runs."""
    process = subprocess.Popen(
        [*SAVING_AFTER_EVERY_STEP, str(folder.path)], stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def newest_checkpoint(folder: CellFolder) -> Path:
    """A file or a folder."""
    return max(folder.checkpoints_path.glob("step-*"))


def steps_saved(folder: CellFolder) -> list[int]:
    """Steps of its checkpoints, in order."""
    names = [path.name for path in folder.checkpoints_path.glob("step-*")]
    return sorted(int(re.search(r"\d+", name)[0]) for name in names)


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(file.stat().st_size for file in files)
