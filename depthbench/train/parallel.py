"""A cell's model as it is trained: alone, replicated (DDP), or sharded (FSDP2)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from depthbench.config import CellConfig
from depthbench.model.build import lay_out_model
from depthbench.model.decoder import Block, LanguageModel
from depthbench.model.speed import compile_parts
from depthbench.train.ranks import World
from residuals import initialise


class Objective(nn.Module):
    """What one forward pass of training or evaluation returns.

    All of it happens inside one `forward`, because that is what DDP and FSDP2 gather weights for.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor, each: bool = False) -> Tensor:
        """Negative log-likelihood in nats: summed, with gradients, or of `each` target (B, T)."""
        if each:
            return self.model.token_nll(tokens_BT, targets_BT)
        return self.model.summed_nll(tokens_BT, targets_BT)


@dataclass(frozen=True)
class Trainee:
    """The model, and how it is called on this rank. `whole`: this rank holds all of it."""

    model: LanguageModel
    objective: nn.Module
    device: torch.device
    precision: str

    @property
    def whole(self) -> bool:
        return not isinstance(self.objective, FSDPModule)

    def autocast(self) -> AbstractContextManager[object]:
        """bf16 products, whatever the weights are; what rules compute in fp32 stays so."""
        narrow = self.precision != "fp32"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=narrow)

    def summed_nll(self, ids_BT: Tensor) -> Tensor:
        """Of predicting every token but the first, summed, in nats, with gradients."""
        with self.autocast():
            total: Tensor = self.objective(ids_BT[:, :-1], ids_BT[:, 1:])
        return total

    def token_nll(self, ids_BT: Tensor) -> Tensor:
        """The same of each target, (B, T − 1), without gradients."""
        with torch.no_grad(), self.autocast():
            nll_BT: Tensor = self.objective(ids_BT[:, :-1], ids_BT[:, 1:], each=True)
        return nll_BT

    def rest(self) -> None:
        """After passes without a backward one, which leave the root of a sharded model gathered."""
        if isinstance(self.objective, FSDPModule):
            self.objective.reshard()

    def averaging(self, last: bool) -> AbstractContextManager[object]:
        """For a backward pass: gradients become their mean over ranks in the `last` of several."""
        if isinstance(self.objective, FSDPModule):
            self.objective.set_requires_gradient_sync(last)
        elif isinstance(self.objective, DistributedDataParallel) and not last:
            return self.objective.no_sync()
        return nullcontext()


def alone(model: LanguageModel, config: CellConfig) -> Trainee:
    """A model that is there already, on the cell's device, as one process sees it."""
    return Trainee(model, Objective(model), torch.device(config.device), config.precision)


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
    if world.num > 1 and config.ranks.mode == "fsdp":
        _shard(objective, device, world)
    model.to_empty(device=device)
    initialise(model, config.seed, _own)
    if config.compile is True:
        model.compile(dynamic=False)
    if world.num > 1 and config.ranks.mode == "ddp":
        devices = [device] if device.type == "cuda" else None
        objective = DistributedDataParallel(objective, devices, gradient_as_bucket_view=True)
    return Trainee(model, objective, device, config.precision)


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
