"""A trained cell, opened for measuring: its weights, its corpus and its tokenizer."""

from dataclasses import dataclass
from pathlib import Path

import torch

import residuals
from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.data.pinned import open_pinned
from depthbench.errors import InputError
from depthbench.folder import CellFolder
from depthbench.model.build import build_model
from depthbench.model.decoder import LanguageModel
from depthbench.train.weights import load_weights
from residuals import DesignError


@dataclass(frozen=True)
class TrainedCell:
    """`model` is in fp32, on its device, in evaluation mode and without gradients."""

    folder: CellFolder
    config: CellConfig
    model: LanguageModel
    corpus: Corpus


def open_trained(path: Path, device: str | None = None) -> TrainedCell:
    """The done cell in the folder `path`, on `device` or where it was trained.

    Raises `InputError` if the cell has no final weights, or its design is now another version;
    `DataError` if its corpus, and so its tokenizer, is not the one prepared here;
    `CheckpointError` if the weights are damaged or of another model.
    """
    folder = checked(path)
    return load_trained(folder, open_pinned(folder.config().corpus), device)


def load_trained(folder: CellFolder, corpus: Corpus, device: str | None = None) -> TrainedCell:
    """The cell with its final weights, which are there, and its open corpus."""
    config = folder.config()
    _check_device(device or config.device)
    model = build_model(config, device)
    load_weights(folder.model_path, model)
    model.eval().requires_grad_(False)
    return TrainedCell(folder, config, model, corpus)


def _check_device(device: str) -> None:
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"device {device!r} cannot be used here ({reason}): choose another with --device"
        ) from error


def checked(path: Path) -> CellFolder:
    """The folder, if it is a done cell whose design this installation has in the same version."""
    folder = CellFolder(path)
    if not folder.config_path.is_file():
        raise InputError(f"{path} is not a cell, it has no config.json: name a cell's folder")
    config = folder.config()
    status = folder.status()
    if status != "done":
        raise InputError(f"{path} is {status}, and only a done cell has final weights: run it")
    if not folder.model_path.is_file():
        raise InputError(f"{folder.model_path} is missing: without its weights run the cell anew")
    trained_with = f"{config.design.name}@{config.design.version}"
    try:
        residuals.get(trained_with)
    except DesignError as error:
        raise InputError(
            f"{path} was trained with {trained_with}, and here is no such design ({error}): "
            "measure it with the depthbench that trained it, or load its design with --plugin"
        ) from error
    return folder
