"""A cell's model as it is trained: alone, replicated (DDP), or sharded (FSDP2)."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from depthbench.config import CellConfig
from depthbench.model.build import lay_out_model
from depthbench.model.decoder import Block
from depthbench.model.speed import compile_parts
from depthbench.train.objective import Objective, Trainee
from depthbench.train.ranks import World
from residuals import initialise


def trainee(config: CellConfig, world: World) -> Trainee:
    """The cell's model with its initial values, which no number of ranks changes."""
    device = torch.device(world.device(config.device))
    model = lay_out_model(config)
    if config.precision == "paper_bf16":
        model.to(torch.bfloat16)
    for block in _blocks(model):
        block.recompute = config.activation_checkpointing
    if config.compile == "blocks":
        compile_parts(model)
    objective: nn.Module = Objective(model)
    sharded = world.num > 1 and config.ranks.mode == "fsdp"
    if sharded:
        _shard(objective, device, world)
    model.to_empty(device=device)
    initialise(model, config.seed, _own)
    if config.compile is True:
        model.compile(dynamic=False)
    if world.num > 1 and config.ranks.mode == "ddp":
        devices = [device] if device.type == "cuda" else None
        objective = DistributedDataParallel(objective, devices, gradient_as_bucket_view=True)
    return Trainee(model, objective, device, config.precision, sharded)


def _blocks(model: nn.Module) -> Iterator[Block]:
    return (module for module in model.modules() if isinstance(module, Block))


def _shard(objective: nn.Module, device: torch.device, world: World) -> None:
    """A unit for every block; the root has the rest, and with it the routing that blocks share."""
    mesh = init_device_mesh(device.type, (world.num,))
    for block in _blocks(objective):
        fully_shard(block, mesh=mesh)
    fully_shard(objective, mesh=mesh)


def _own(parameter: nn.Parameter, values: Tensor) -> Tensor:
    """This rank's part of the values: every rank has drawn the same, one parameter at a time."""
    if not isinstance(parameter, DTensor):
        return values
    mesh, placements = parameter.device_mesh, parameter.placements
    values = values.to(parameter.device, parameter.dtype)
    return distribute_tensor(values, mesh, placements, src_data_rank=None)
