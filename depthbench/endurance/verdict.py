"""Whether what was killed came out as what was not."""

from pathlib import Path
from typing import Any

from depthbench.endurance.trial import Trial
from depthbench.folder import CellFolder, read_metrics

_RESULT = ("status", "step", "measures")
_RECORDS = ("step", "tokens", "loss", "learning_rate", "grad_norm", "evaluation")
_FILES = ("model.safetensors", "layers.jsonl")


def compared(trial: Trial, reference: Path) -> list[dict[str, Any]]:
    """A row for each cell of each round; `differs` is empty where all is as in the reference."""
    rows = []
    for number, folder in enumerate(trial.rounds, 1):
        for path in sorted(reference.iterdir()):
            cell = CellFolder(folder / path.name)
            result = cell.result() or {}
            rows.append(
                {
                    "round": number,
                    "cell": path.name,
                    "kills": sum((k.round, k.cell) == (number, path.name) for k in trial.kills),
                    "status": result.get("status"),
                    "loss": (result.get("measures") or {}).get("loss"),
                    "differs": differences(CellFolder(path), cell),
                }
            )
    return rows


def differences(reference: CellFolder, cell: CellFolder) -> list[str]:
    """Where a cell departs from the undisturbed one, be it by a bit, and what lies about in it.

    Losses, gradient norms, rates and weights are compared; what a clock says is not.
    """
    expected, result = reference.result() or {}, cell.result() or {}
    found = [f"result.json: {key}" for key in _RESULT if result.get(key) != expected.get(key)]
    if _numbers(cell) != _numbers(reference):
        found.append("metrics.jsonl")
    found += [name for name in _FILES if _bytes(cell, name) != _bytes(reference, name)]
    return found + [f"left: {path.name}" for path in sorted(cell.path.rglob(".*"))]


def _numbers(cell: CellFolder) -> list[dict[str, Any]]:
    records = read_metrics(cell.metrics_path)
    return [{key: record.get(key) for key in _RECORDS} for record in records]


def _bytes(cell: CellFolder, name: str) -> bytes | None:
    path = cell.path / name
    return path.read_bytes() if path.exists() else None
