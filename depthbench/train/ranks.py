"""The processes that train one cell together: which one this is, and what they agree on."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from depthbench.errors import InputError

T = TypeVar("T")
_VARIABLES = (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))


@dataclass(frozen=True)
class World:
    """Process `rank` of `num`, the `local`-th of its machine. Alone, nothing is communicated."""

    rank: int = 0
    num: int = 1
    local: int = 0

    @property
    def leads(self) -> bool:
        """Whether this process writes the cell's files."""
        return self.rank == 0

    def device(self, name: str) -> str:
        """The device of this rank where the cell names only a kind."""
        spread = self.num > 1 and name != "cpu" and ":" not in name
        return f"{name}:{self.local}" if spread else name

    def sums(self, *values: float) -> list[float]:
        """The sums over ranks, in fp64."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def largest(self, value: float) -> float:
        """The largest over ranks."""
        return self._reduced((value,), dist.ReduceOp.MAX)[0]

    def any(self, *wishes: bool) -> list[bool]:
        """Whether any rank wishes so, the same answer on each."""
        return [wish > 0 for wish in self._reduced(wishes, dist.ReduceOp.MAX)]

    def gathered(self, value: T) -> list[T]:
        """What every rank has to say, in their order, on each."""
        if self.num == 1:
            return [value]
        found: list[T] = [value] * self.num
        dist.all_gather_object(found, value)
        return found

    def _reduced(self, values: tuple[float, ...], how: "dist.ReduceOp.RedOpType") -> list[float]:
        if self.num == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, how)
        return tensor.tolist()


ALONE = World()


def spread() -> bool:
    """Whether `torchrun` has started this process as one of several."""
    return "WORLD_SIZE" in os.environ


def environment() -> World:
    """What `torchrun` says in the environment; alone where it says nothing."""
    rank, num, local = (int(os.environ.get(name, default)) for name, default in _VARIABLES)
    return World(rank, num, local)


def whole(values: Tensor) -> Tensor:
    """All of a tensor of which this rank may hold a part; then all ranks call it together."""
    gather = getattr(values, "full_tensor", None)  # to ask for the class takes a second of imports
    found: Tensor = gather() if gather else values
    return found


@contextmanager
def joined(device: str) -> Iterator[World]:
    """This process among the others, which wait for each other here."""
    world = environment()
    if world.num == 1:
        yield world
        return
    # Small agreements stay on the CPU: waiting for one does not wait for the accelerator's queue.
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    if device.startswith("cuda"):
        if world.local >= (num := torch.cuda.device_count()):
            raise InputError(
                f"rank {world.rank} finds {num} GPUs here: set ranks.num to at most that number"
            )
        torch.cuda.set_device(world.device(device))
    dist.init_process_group(backend, rank=world.rank, world_size=world.num)
    try:
        yield world
    finally:
        leave()


def leave() -> None:
    """To be called by all ranks at about the same time: an accelerator's group ends together."""
    if dist.is_initialized():
        dist.destroy_process_group()


def end(code: int) -> NoReturn:
    """Ends this process at once with `code`; what it has printed is kept.

    Sharding holds the group's threads alive after `leave`, and one that lets go of a tensor while
    the interpreter shuts down aborts the process: its work done, a rank would end all the others.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
