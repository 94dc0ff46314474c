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
    target = folder / f"step-{progress.step:09d}.safetensors"
    state = json.dumps(asdict(progress))
    metadata = {"progress": state, "sha256": _digest(tensors, state)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(target) as aside:
            save_file(tensors, aside, metadata)
    except (OSError, SafetensorError) as error:
        needed = sum(t.numel() * t.element_size() for t in tensors.values())
        raise CheckpointError(
            f"no checkpoint could be written to {folder} ({error}): it needs {needed:,} bytes; "
            "free some space and start again, the previous checkpoint is whole"
        ) from error
    newest = _newest_first(folder)
    # Later ones were passed over as damaged: they must not take the place of sound ones.
    later = [path for path in newest if path > target]
    for old in (*later, *newest[len(later) + KEPT :], *folder.glob(".step-*.aside")):
        old.unlink(missing_ok=True)


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
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
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


def _digest(tensors: Mapping[str, Tensor], progress: str) -> str:
    sha = hashlib.sha256(progress.encode())
    for name in sorted(tensors):
        sha.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        sha.update(tensors[name].cpu().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


@torch.no_grad()
def _restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    with safe_open(path, "pt") as file:
        metadata: dict[str, Any] = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if _digest(tensors, metadata["progress"]) != metadata["sha256"]:
        raise ValueError("its contents do not match its hash")
    progress = Progress(**json.loads(metadata["progress"]))
    # All is looked up before anything is changed. There are no moments before the first step.
    moments = ("step", "exp_avg", "exp_avg_sq") if progress.step else ()
    found = []
    for name, parameter in model.named_parameters():
        weight = tensors[f"weight/{name}"]
        if weight.shape != parameter.shape:
            raise ValueError(f"{name} has another shape")
        found.append((parameter, weight, {key: tensors[f"{key}/{name}"] for key in moments}))
    for parameter, weight, state in found:
        parameter.copy_(weight)
        if state:
            optimizer.state[parameter] = {k: v.to(parameter.device) for k, v in state.items()}
    return progress
