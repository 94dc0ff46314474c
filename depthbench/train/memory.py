"""Activation memory, counted: the same on every machine, unlike a peak."""

import torch
from torch import Tensor

from depthbench.config import CellConfig
from depthbench.model.decoder import Decoder


def activation_bytes(model: Decoder, ids_BT: Tensor, config: CellConfig) -> int:
    """Bytes that autograd keeps from the forward pass of one micro-batch for its backward.

    `ids_BT` (micro-batch, T + 1). Each storage counts once; the model's own parameters do not.
    """
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
        model.summed_nll(ids_BT[:, :-1], ids_BT[:, 1:])
    return sum(kept.values())
