"""A suite as the list of its cells, with what each will cost. Nothing is run or written."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import torch

from depthbench import ledger, memory
from depthbench.accelerators import UTILISATION as ASSUMED
from depthbench.accelerators import Accelerator
from depthbench.config import CellConfig, CorpusRef
from depthbench.errors import InputError
from depthbench.expand import Chosen, expand
from depthbench.suite import Suite

# Of a large matrix product's rate: what training at CPU sizes reaches, and how much slower than
# such a product the memory-bound sums over streams and depth run.
UTILISATION = 0.35
MIXING_WEIGHT = 12


@dataclass(frozen=True)
class Machine:
    """A kind of accelerator, and the share of its peak that training is assumed to reach."""

    accelerator: Accelerator
    utilisation: float = ASSUMED

    def __post_init__(self) -> None:
        if not 0 < self.utilisation <= 1:
            raise InputError(
                f"utilisation = {self.utilisation}: give the share of the peak that training "
                "reaches, above 0 and at most 1"
            )


@dataclass(frozen=True)
class PlannedCell:
    """A cell and its estimates: seconds when alone on its devices, bytes of memory and disk.

    `memory_bytes` is of the machine, for all ranks; `rank_bytes` of one rank on its device.
    `needs` is what to set so that a rank fits there, `()` for nothing: known of a named accelerator
    alone. None: it fits with neither setting, or nobody asked.
    """

    config: CellConfig
    ledger: dict[str, int | float]
    seconds: float
    memory_bytes: int
    disk_bytes: int
    rank_bytes: int
    needs: tuple[str, ...] | None = None

    @property
    def device_hours(self) -> float:
        """Hours of all ranks together."""
        return self.seconds * self.config.ranks.num / 3600


def plan(
    suite: Suite, corpus: CorpusRef, chosen: Chosen | None = None, on: Machine | None = None
) -> list[PlannedCell]:
    """What every cell will cost. `chosen`, and what is raised, are as in `expand`."""
    return estimate(expand(suite, corpus, chosen), on)


def estimate(configs: Iterable[CellConfig], on: Machine | None = None) -> list[PlannedCell]:
    """What these cells will cost, on this machine or on accelerators of a named kind."""
    return [_planned(config, on) for config in configs]


def _planned(config: CellConfig, on: Machine | None) -> PlannedCell:
    if on is not None and config.device == "cpu":
        config = config.model_copy(update={"device": "cuda"})
    costs = ledger.ledger(config)
    size = costs.parameters
    return PlannedCell(
        config=config,
        ledger=costs.as_dict(),
        seconds=_here(config, costs.total_flops) if on is None else _there(config, costs, on),
        memory_bytes=memory.memory_bytes(config, size),
        disk_bytes=memory.disk_bytes(config, size),
        rank_bytes=memory.rank_bytes(config, size),
        needs=None if on is None else memory.needed(config, size, on.accelerator.memory_bytes),
    )


def _there(config: CellConfig, costs: ledger.Ledger, on: Machine) -> float:
    reached = on.utilisation * on.accelerator.peak(config.precision)
    return costs.total_flops / (reached * config.ranks.num)


def _here(config: CellConfig, total_flops: int) -> float:
    mixing = config.tokens * sum(
        (part.forward + 2 * part.backward) * part.design.routing_flops().mixing
        for part in ledger.parts(config)
    )
    slowed = total_flops + (MIXING_WEIGHT - 1) * mixing
    rate = UTILISATION * matmul_rate(config.device, config.threads)
    return slowed / (rate * config.ranks.num)


@cache
def matmul_rate(device: str, threads: int) -> float:
    """FLOP/s of a large matrix product on the device, measured for a moment.

    Without the device, the CPU's rate: a plan may be made on a machine that will not run it.
    """
    if device != "cpu" and not torch.get_device_module(device.partition(":")[0]).is_available():
        return matmul_rate("cpu", threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    size = 512 if device == "cpu" else 4096
    a = torch.ones(size, size, device=device)
    (a @ a).sum().item()
    start = time.perf_counter()
    for _ in range(8):
        b = a @ a
    b.sum().item()
    seconds = time.perf_counter() - start
    torch.set_num_threads(before)
    return 8 * 2 * size**3 / seconds
