"""Activation memory, counted: the same on every machine, unlike a peak."""

import torch
from torch import Tensor

from depthbench.config import CellConfig
from depthbench.model.decoder import LanguageModel


def activation_bytes(model: LanguageModel, config: CellConfig) -> int:
    """Bytes that autograd keeps from the forward pass of one micro-batch for its backward.

    Each storage counts once; the model's own parameters do not.
    """
    size = (config.micro_batch_size, config.sequence_length)
    ids_BT = torch.zeros(size, dtype=torch.int64, device=config.device)
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    bf16 = config.precision == "bf16"
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast(ids_BT.device.type, torch.bfloat16, enabled=bf16),
    ):
        model.summed_nll(ids_BT, ids_BT)
    return sum(kept.values())
