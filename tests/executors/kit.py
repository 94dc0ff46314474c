"""What the tests of executors share: questions to Slurm, and a matrix started by any executor."""

import io
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from depthbench import matrix
from depthbench.executors import Executor
from depthbench.executors.slurm import SlurmExecutor, SlurmOptions
from tests.matrix.kit import Bench

# Runs the matrix of fake cells in argv[3] under Slurm.
PARENT = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from depthbench import matrix
from depthbench.config import CellConfig
from depthbench.executors.slurm import SlurmExecutor, SlurmOptions

out, cell, configs = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
cells = [
    SimpleNamespace(config=CellConfig(**c), seconds=1.0, memory_bytes=1, disk_bytes=1)
    for c in configs
]
executor = SlurmExecutor(SlurmOptions(), command=[sys.executable, cell], every=0.3)
sys.exit(matrix.run(cells, out, executor=executor))
"""


def slurm(bench: Bench, **options: Any) -> SlurmExecutor:
    """Starts fake cells, and asks Slurm often; a result is visible at once on one machine."""
    return SlurmExecutor(SlurmOptions(**options), command=fake(bench), every=0.3, late=0.0)


def fake(bench: Bench) -> list[str]:
    """The command of its fake cells."""
    return [sys.executable, str(bench.cell)]


def queue(executor: SlurmExecutor | None = None) -> dict[str, str]:
    """State of every job that is not over, of one executor or of all."""
    whose = [f"--name={executor.name}"] if executor else []
    asked = subprocess.run(
        ["squeue", "--array", "--noheader", "--format=%i %T", *whose],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split() for line in asked.stdout.splitlines())


def send_term(executor: SlurmExecutor) -> None:
    """As a person does who wants what runs to save itself."""
    command = ["scancel", "--signal=TERM", "--state=RUNNING", f"--name={executor.name}"]
    subprocess.run(command, check=True)


def run_beside(
    cells: list[Any], out: Path, executor: Executor, meanwhile: Callable[[], None]
) -> tuple[int, str]:
    """The matrix in the main thread and `meanwhile` in another: cells left, and what was said."""
    written = io.StringIO()
    failures: list[BaseException] = []

    def watch() -> None:
        try:
            meanwhile()
        except BaseException as error:
            failures.append(error)

    other = threading.Thread(target=watch)
    other.start()
    left = matrix.run(cells, out, console=Console(file=written, width=300), executor=executor)
    other.join()
    if failures:
        raise failures[0]
    return left, written.getvalue()
