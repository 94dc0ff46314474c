"""The final weights of a cell, as one safetensors file."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from depthbench.errors import CheckpointError
from depthbench.folder import replacing
from depthbench.train.ranks import ALONE, World, whole
from depthbench.train.room import not_written


def save_weights(path: Path, model: nn.Module, world: World = ALONE) -> None:
    """The weights alone, whole, on the CPU. All ranks call it together, and the first writes.

    Raises `CheckpointError` if they cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        values = whole(parameter.detach())
        if world.leads:
            tensors[name] = values.cpu().contiguous()
    if world.leads:
        try:
            with replacing(path) as aside:
                save_file(tensors, aside)
        except (OSError, SafetensorError) as error:
            raise not_written("weights", path.parent, tensors.values(), str(error)) from error


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
