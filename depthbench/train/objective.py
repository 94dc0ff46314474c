"""What a training step calls, whatever number of ranks the model is spread over.

Nothing of `torch.distributed` is imported here: it takes a second, and all that reads a trained
cell comes by.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from depthbench.config import CellConfig
from depthbench.model.decoder import LanguageModel

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


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
    """The model, and how it is called on this rank. `sharded`: this rank holds a part of it."""

    model: LanguageModel
    objective: nn.Module
    device: torch.device
    precision: str
    sharded: bool = False

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
        if self.sharded:
            cast("FSDPModule", self.objective).reshard()

    def averaging(self, last: bool) -> AbstractContextManager[object]:
        """For a backward pass: gradients become their mean over ranks in the `last` of several."""
        if self.sharded:
            cast("FSDPModule", self.objective).set_requires_gradient_sync(last)
        elif isinstance(self.objective, DistributedDataParallel) and not last:
            return self.objective.no_sync()
        return nullcontext()


def alone(model: LanguageModel, config: CellConfig) -> Trainee:
    """A model that is there already, on the cell's device, as one process sees it."""
    return Trainee(model, Objective(model), torch.device(config.device), config.precision)
