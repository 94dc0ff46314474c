"""Checkpoints: safetensors, written aside and renamed, verified by hash when read.

A checkpoint holds weights, both moments and what the loop needs to go on. The newest two are kept;
a damaged one is reported and the one before it used.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from depthbench.errors import CheckpointError
from depthbench.folder import replacing

KEPT = 2


@dataclass
class Progress:
    """Where a run stands after `step` steps; seconds and losses as the metrics need them."""

    step: int = 0
    elapsed: float = 0.0
    train_seconds: float = 0.0
    pending_losses: list[float] = field(default_factory=list)
    recent_losses: list[float] = field(default_factory=list)


def save(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress
) -> None:
    """Writes `step-N.safetensors` and drops all but the newest two.

    Raises `CheckpointError` if it cannot be written; what was there stays.
    """
    tensors = dict(_tensors(model, optimizer))
    metadata = {"progress": json.dumps(asdict(progress)), "sha256": _digest(tensors)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / f"step-{progress.step:09d}.safetensors") as aside:
            save_file(tensors, aside, metadata)
    except (OSError, SafetensorError) as error:
        needed = sum(t.numel() * t.element_size() for t in tensors.values())
        raise CheckpointError(
            f"no checkpoint could be written to {folder} ({error}): it needs {needed:,} bytes; "
            "free some space and start again, the previous checkpoint is whole"
        ) from error
    for old in _newest_first(folder)[KEPT:]:
        old.unlink()


def load_newest(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Progress, list[str]]:
    """Restores the newest valid checkpoint; step 0 if there is none.

    Returns the progress and one warning for every damaged checkpoint passed over.
    """
    warnings: list[str] = []
    for path in _newest_first(folder):
        try:
            return _restore(path, model, optimizer), warnings
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            warnings.append(f"{path} is damaged ({error}): an earlier checkpoint is used")
    return Progress(), warnings


def save_weights(path: Path, model: nn.Module) -> None:
    """The weights alone, as `model.safetensors`."""
    with replacing(path) as aside:
        save_file({name: p.detach().contiguous() for name, p in model.named_parameters()}, aside)


def load_weights(path: Path, model: nn.Module) -> None:
    """Fills the model from `save_weights`. Raises `CheckpointError` naming what does not fit."""
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    parameters = dict(model.named_parameters())
    unlike = [
        name
        for name in sorted(parameters.keys() | tensors.keys())
        if name not in parameters
        or name not in tensors
        or parameters[name].shape != tensors[name].shape
    ]
    if unlike:
        raise CheckpointError(f"{path} is of another model, it differs in {', '.join(unlike[:5])}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"), reverse=True)


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[tuple[str, Tensor]]:
    tensors = []
    for name, parameter in model.named_parameters():
        tensors.append((f"weight/{name}", parameter.detach().contiguous()))
        for key, value in optimizer.state[parameter].items():
            tensors.append((f"{key}/{name}", value.contiguous()))
    return tensors


def _digest(tensors: Mapping[str, Tensor]) -> str:
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(tensors[name].cpu().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


@torch.no_grad()
def _restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    with safe_open(path, "pt") as file:
        metadata: dict[str, Any] = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if _digest(tensors) != metadata["sha256"]:
        raise ValueError("its contents do not match its hash")
    progress = Progress(**json.loads(metadata["progress"]))
    for name, parameter in model.named_parameters():
        if tensors[f"weight/{name}"].shape != parameter.shape:
            raise ValueError(f"{name} has another shape")
    for name, parameter in model.named_parameters():
        parameter.copy_(tensors[f"weight/{name}"])
        optimizer.state[parameter] = {
            key: tensors[f"{key}/{name}"].to(parameter.device if key != "step" else "cpu")
            for key in ("step", "exp_avg", "exp_avg_sq")
        }
    return progress
