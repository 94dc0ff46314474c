"""Fake cells with an act each, and a matrix of them."""

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from depthbench import matrix
from depthbench.config import CellConfig
from depthbench.executors.local import LocalExecutor
from depthbench.folder import CellFolder, read_metrics

# A cell command whose behaviour is the option "act" of its design. Loss after step n is 8 / n.
CELL = """
import os, signal, sys, time
from pathlib import Path
from depthbench.executors.local import watch_parent
from depthbench.folder import CellFolder, Metrics, read_metrics, write_json

watch_parent()
folder = CellFolder(Path(sys.argv[1]))
config = folder.config()
act = config.design.options["act"]
asked = []
signal.signal(signal.SIGTERM, signal.SIG_IGN if act == "stubborn" else lambda *_: asked.append(1))
(folder.path / "pid").write_text(str(os.getpid()))

def end(status, **more):
    result = {"schema": 1, "status": status, "config": config.model_dump(), "step": step,
              "diverged_step": None, "error": None, "measures": None}
    write_json(folder.result_path, result | more)

with folder.lock():
    if folder.finished:  # by another process, while this one waited for the lock
        sys.exit()
    done = read_metrics(folder.metrics_path)
    step = done[-1]["step"] if done else 0
    print("begins after step", step, flush=True)
    with Metrics(folder.metrics_path) as metrics:
        while step < config.steps and not asked:
            step += 1
            metrics.append({"step": step, "loss": 8 / step, "tokens_per_second": 2500.0,
                            "eta": 7.0})
            if step == 2 and act == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if step == 2 and act == "raises":
                raise RuntimeError("boom of the cell")
            if step == 2 and act == "diverges":
                end("diverged", diverged_step=2)
                sys.exit()
            time.sleep(0.05 if act in ("long", "stubborn") else 0)
    if asked:
        end("interrupted")
        sys.exit(75)
    end("done", measures={"loss": 8 / step}, ledger={"tokens_per_second": 2500.0})
"""

# Runs the matrix of the configs in argv[3] the way the command line does.
PARENT = """
import json, signal, sys
from pathlib import Path
from types import SimpleNamespace
from depthbench import matrix
from depthbench.config import CellConfig
from depthbench.executors.local import LocalExecutor

signal.signal(signal.SIGINT, signal.default_int_handler)
out, cell, configs = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
cells = [
    SimpleNamespace(config=CellConfig(**c), seconds=1.0, memory_bytes=1, disk_bytes=1)
    for c in configs
]
executor = LocalExecutor(
    command=[sys.executable, cell], cores=2, memory_bytes=100, grace=float(sys.argv[4])
)
try:
    sys.exit(matrix.run(cells, out, executor=executor))
except KeyboardInterrupt:
    sys.exit(75)
"""


@dataclass(frozen=True)
class Planned:
    """What the matrix reads of a planned cell."""

    config: CellConfig
    seconds: float = 1.0
    memory_bytes: int = 1
    disk_bytes: int = 1


def planned(act: str, seed: int = 0, steps: int = 4, **costs: Any) -> Any:
    config = CellConfig.model_validate(
        {
            "suite": "unit",
            "ladder": "none",
            "design": {"name": "fake", "version": 1, "options": {"act": act}},
            "shape": {"layers": 2, "d_model": 8, "ffn": 16, "heads": 2},
            "corpus": {"name": "none", "hash": "a", "tokenizer_hash": "b", "vocab_size": 16},
            "sequence_length": 4,
            "batch_size": 2,
            "micro_batch_size": 2,
            "steps": steps,
            "optimizer": {"learning_rate": 0.001},
            "evaluation": {"tokens": 8},
            "norm_eps": 1e-6,
            "seed": seed,
        }
    )
    return Planned(config, **costs)


@dataclass
class Bench:
    """A matrix of fake cells in one folder."""

    path: Path
    written: io.StringIO

    @property
    def out(self) -> Path:
        return self.path / "runs"

    @property
    def cell(self) -> Path:
        return self.path / "cell.py"

    def run(self, *cells: Any, **limits: Any) -> int:
        limits = {"cores": 2, "memory_bytes": 100} | limits
        executor = LocalExecutor(command=[sys.executable, str(self.cell)], **limits)
        console = Console(file=self.written, width=200)
        return matrix.run(cells, self.out, console=console, executor=executor)

    def parent(self, *cells: Any, grace: float = 20.0) -> subprocess.Popen[str]:
        script = self.path / "parent.py"
        script.write_text(PARENT)
        configs = json.dumps([cell.config.model_dump() for cell in cells])
        return subprocess.Popen(
            [sys.executable, str(script), str(self.out), str(self.cell), configs, str(grace)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def folder(self, cell: Any) -> CellFolder:
        return CellFolder(self.out / cell.config.folder_name())

    def steps(self, cell: Any) -> list[int]:
        return [record["step"] for record in read_metrics(self.folder(cell).metrics_path)]

    def pid(self, cell: Any) -> int:
        return int((self.folder(cell).path / "pid").read_text())


def wait_until(true: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return state.stdout.strip() != "" and not state.stdout.startswith("Z")
