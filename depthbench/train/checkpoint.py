"""Checkpoints: folders of safetensors, written aside and renamed, verified by hash when read.

A checkpoint holds weights, both moments and what the loop needs to go on. Every rank writes what it
holds of them (`torch.distributed.checkpoint`), and any number of ranks can read them. The newest
two are kept; a damaged one is reported and the one before it used.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors

from depthbench.errors import DepthbenchError
from depthbench.folder import read_json, sync_directory, write_json
from depthbench.train.ranks import ALONE, World
from depthbench.train.room import not_written

KEPT = 2
FILE_BYTES = 2**30
MOMENTS = ("exp_avg", "exp_avg_sq")
PROGRESS = "progress.json"


@dataclass
class Progress:
    """Where a run stands after `step` steps; seconds and losses as the metrics need them."""

    step: int = 0
    elapsed: float = 0.0
    device_seconds: float = 0.0
    train_seconds: float = 0.0
    pending_losses: list[float] = field(default_factory=list)
    recent_losses: list[float] = field(default_factory=list)


def save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    world: World = ALONE,
) -> None:
    """Writes `step-N/` and drops all but the newest two. All ranks call it together.

    Raises `CheckpointError` if it cannot be written; what was there stays.
    """
    target = folder / f"step-{progress.step:09d}"
    aside = folder / f".{target.name}.aside"
    tensors = _tensors(model, optimizer, with_moments=progress.step > 0)
    with _said(folder, tensors, world):
        if world.leads:
            aside.mkdir(parents=True)
        world.gathered(None)
        writer = HuggingFaceStorageWriter(str(aside), _files(tensors), save_distributed=True)
        with _alone_in_silence():
            save_tensors(tensors, storage_writer=writer, no_dist=world.num == 1)
        hashes: dict[str, str] = {}
        for own in world.gathered(_hashes(aside, world)):
            hashes |= own
        if world.leads:
            document = {"progress": asdict(progress), "files": hashes}
            write_json(aside / PROGRESS, document | {"sha256": _digest(document)})
            sync_directory(aside)
            _remove(target)  # a damaged one, or none: nobody saves the same step twice
            os.replace(aside, target)
            sync_directory(folder)
    if world.leads:
        newest = _newest_first(folder)
        # Later ones were passed over as damaged: they must not take the place of sound ones.
        later = [path for path in newest if path > target]
        for old in (*later, *newest[len(later) + KEPT :]):
            _remove(old)


def load_newest(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    world: World = ALONE,
) -> tuple[Progress, list[str]]:
    """Restores the newest valid checkpoint; step 0 if there is none. All ranks call it together.

    Returns the progress and one warning for every damaged checkpoint passed over.
    """
    if world.leads:  # what a crash left; nobody else writes while the cell is locked
        _clear(folder)
    warnings: list[str] = []
    for path in world.gathered(_newest_first(folder))[0]:
        damaged = _first(world.gathered(_damage(path, world)))
        fault = damaged or _first(world.gathered(_misfit(path, model)))
        if not fault:
            return _restore(path, model, optimizer, world), warnings
        warnings.append(f"{path} is damaged ({fault}): an earlier checkpoint is used")
    return Progress(), warnings


def _first(faults: list[str]) -> str:
    return next(filter(None, faults), "")


@contextmanager
def _said(folder: Path, tensors: dict[str, Tensor], world: World) -> Iterator[None]:
    """What goes wrong while writing, on whichever rank, as one error on each that notices."""
    try:
        yield
    except (OSError, CheckpointException) as error:
        if world.leads:
            _clear(folder)
        reason = _reason(error)
        raise not_written("checkpoint", folder, tensors.values(), reason) from error


@contextmanager
def _alone_in_silence() -> Iterator[None]:
    """That there is one process only is meant so, and said on every call."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _reason(error: OSError | CheckpointException) -> str:
    """The first rank's own words."""
    if isinstance(error, CheckpointException):
        return str(next(iter(error.failures.values()))[0])
    return str(error)


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)


def _tensors(
    model: nn.Module, optimizer: torch.optim.Optimizer, with_moments: bool
) -> dict[str, Tensor]:
    """What a checkpoint holds, by name; moments that do not exist yet are made, as zeros."""
    tensors: dict[str, Tensor] = {}
    begun = bool(optimizer.state)
    for name, parameter in model.named_parameters():
        # A parameter of a sharded model that is gathered is another object than the optimiser's.
        assert not (with_moments and begun) or parameter in optimizer.state, name
        tensors[f"weight/{name}"] = parameter.detach()
        state = optimizer.state[parameter] if with_moments else {}
        for key in MOMENTS if with_moments else ():
            tensors[f"{key}/{name}"] = state.setdefault(key, torch.zeros_like(parameter))
    return tensors


def _files(tensors: dict[str, Tensor]) -> dict[str, int]:
    """The number of the file that each tensor goes to, from 1: a file is put together in memory."""
    number, size, numbers = 1, 0, {}
    for name, tensor in tensors.items():
        numbers[name], size = number, size + tensor.numel() * tensor.element_size()
        if size >= FILE_BYTES:
            number, size = number + 1, 0
    return numbers


def _hashes(folder: Path, world: World) -> dict[str, str]:
    """Of every `num`-th file, this rank's share of the work."""
    # What another machine has just written may not be in a listing here yet.
    seen = world.gathered([file.name for file in folder.glob("*.safetensors")])
    names = sorted({name for own in seen for name in own})[world.rank :: world.num]
    return {name: _sha256(folder / name) for name in names}


def _sha256(file: Path) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _digest(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _damage(path: Path, world: World) -> str:
    """What is wrong with the files that this rank looks at, or nothing."""
    try:
        document = read_json(path / PROGRESS)
        if document.pop("sha256", None) != _digest(document):
            return f"{PROGRESS} does not match its hash"
        Progress(**document["progress"])
        for name in sorted(document["files"])[world.rank :: world.num]:
            if _sha256(path / name) != document["files"][name]:
                return f"{name} does not match its hash"
    except (OSError, DepthbenchError, ValueError, TypeError, KeyError, AttributeError) as error:
        return str(error)
    return ""


def _misfit(path: Path, model: nn.Module) -> str:
    """What a sound checkpoint has not, or in another shape, or nothing."""
    kept = HuggingFaceStorageReader(str(path)).read_metadata().state_dict_metadata
    for name, parameter in model.named_parameters():
        found = kept.get(f"weight/{name}")
        if not isinstance(found, TensorStorageMetadata):
            return f"{name} is not in it"
        if found.size != parameter.shape:
            return f"{name} has another shape"
    return ""


@torch.no_grad()
def _restore(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, world: World
) -> Progress:
    progress = Progress(**read_json(path / PROGRESS)["progress"])
    # There are no moments before the first step.
    tensors = _tensors(model, optimizer, with_moments=progress.step > 0)
    reader = HuggingFaceStorageReader(str(path))
    with _alone_in_silence():
        load_tensors(tensors, storage_reader=reader, no_dist=world.num == 1)
    if progress.step:
        for parameter in model.parameters():
            # One number for all: the optimiser counts every parameter's updates by itself.
            count = torch.tensor(float(progress.step), device=parameter.device)
            optimizer.state[parameter]["step"] = count
    return progress


def _clear(folder: Path) -> None:
    """Removes what was not written to its end."""
    for aside in folder.glob(".step-*.aside"):
        _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
