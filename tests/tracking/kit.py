"""Cells whose files grow as those of a run do, and a W&B that records, raises or hangs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from depthbench.folder import CellFolder, Metrics, write_json
from tests.kit import cell_config

# Acts by the file `act` beside it, and appends what it was told to `told.jsonl`.
WANDB = """
import json, os, time
from pathlib import Path

HERE = Path(__file__).parent

def _act(place, **told):
    act = (HERE / "act").read_text()
    with open(HERE / "told.jsonl", "a") as file:
        file.write(json.dumps({"call": place, "pid": os.getpid(), **told}) + "\\n")
    if act == f"raises in {place}":
        raise RuntimeError("no network today")
    if act == f"hangs in {place}":
        while True:
            time.sleep(60)

class _Run:
    def __init__(self):
        self.summary = self
    def define_metric(self, name, step_metric=None):
        pass
    def update(self, values):
        _act("summary", values=values)
    def log(self, values):
        _act("log", values=values)
    def finish(self, exit_code):
        _act("finish", exit_code=exit_code)

def init(**given):
    _act("init", **given)
    return _Run()
"""


def fake_wandb(place: Path, act: str = "records") -> Path:
    """A folder for PYTHONPATH; `act` is as in "raises in log"."""
    folder = place / "fake"
    folder.mkdir(exist_ok=True)
    (folder / "wandb.py").write_text(WANDB)
    (folder / "act").write_text(act)
    return folder


def told(fake: Path, call: str | None = None) -> list[dict[str, Any]]:
    """What the fake was told, or only those calls."""
    path = fake / "told.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in map(json.loads, lines) if call in (None, line["call"])]


def cell(root: Path, **changes: Any) -> CellFolder:
    """A cell of which nothing has been run."""
    config = cell_config(**changes)
    folder = CellFolder(root / config.folder_name())
    folder.create(config)
    return folder


def train(folder: CellFolder, *steps: int, loss: float = 1.0) -> None:
    """Appends a training record for each step, with the loss `loss / step`."""
    append(folder.metrics_path, *(record(step, loss) for step in steps))


def record(step: int, loss: float = 1.0) -> dict[str, Any]:
    return {
        "step": step,
        "tokens": 32 * step,
        "loss": loss / step,
        "grad_norm": None,
        "elapsed": step / 2,
    }


def append(path: Path, *records: dict[str, Any]) -> None:
    with Metrics(path) as metrics:
        for each in records:
            metrics.append(each)


def finish(folder: CellFolder, step: int, loss: float = 0.7, status: str = "done") -> None:
    measures = {"loss": loss, "loss_by_source": {"a b": 2.0}, "history": [[32, loss]]}
    document = {"schema": 1, "status": status, "step": step, "measures": measures}
    write_json(folder.result_path, document | {"ledger": {"parameters": 12, "device": "cpu"}})


def scalars(place: Path) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value of every event that TensorBoard shows of a folder, in its order."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(place), size_guidance={"scalars": 0})
    found.Reload()
    for tag in sorted(found.Tags()["scalars"]):
        yield from ((tag, event.step, event.value) for event in found.Scalars(tag))
