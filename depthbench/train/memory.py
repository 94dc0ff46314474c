"""Activation memory, counted: the same on every machine, unlike a peak."""

import torch
from torch import Tensor

from depthbench.config import CellConfig
from depthbench.train.objective import Trainee


def activation_bytes(trainee: Trainee, config: CellConfig) -> int:
    """Bytes that autograd keeps from the forward pass of one micro-batch for its backward.

    Each storage counts once; the model's own parameters do not. The model has to be whole: what is
    gathered of a sharded one cannot be told from activations.
    """
    size = (config.micro_batch_size, config.sequence_length)
    ids_BT = torch.zeros(size, dtype=torch.int64, device=trainee.device)
    parameters = {p.untyped_storage().data_ptr() for p in trainee.model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    keeping = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with keeping, trainee.autocast():
        trainee.objective(ids_BT, ids_BT)
    return sum(kept.values())
