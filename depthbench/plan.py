"""A suite as the list of its cells, with what each will cost. Nothing is run or written."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import torch

from depthbench import ledger
from depthbench.config import CellConfig, CorpusRef
from depthbench.expand import Chosen, expand
from depthbench.suite import Suite

# Of a large matrix product's rate: what training at CPU sizes reaches, and how much slower than
# such a product the memory-bound sums over streams and depth run.
UTILISATION = 0.35
MIXING_WEIGHT = 12


@dataclass(frozen=True)
class PlannedCell:
    """A cell and its estimates: seconds when alone on the device, bytes of memory and disk."""

    config: CellConfig
    ledger: dict[str, int | float]
    seconds: float
    memory_bytes: int
    disk_bytes: int


def plan(suite: Suite, corpus: CorpusRef, chosen: Chosen | None = None) -> list[PlannedCell]:
    """What every cell will cost. `chosen`, and what is raised, are as in `expand`."""
    return estimate(expand(suite, corpus, chosen))


def estimate(configs: Iterable[CellConfig]) -> list[PlannedCell]:
    """What these cells will cost."""
    return [_planned(config) for config in configs]


def _planned(config: CellConfig) -> PlannedCell:
    costs = ledger.ledger(config)
    mixing = config.tokens * sum(
        (part.forward + 2 * part.backward) * part.design.routing_flops().mixing
        for part in ledger.parts(config)
    )
    slowed = costs.total_flops + (MIXING_WEIGHT - 1) * mixing
    return PlannedCell(
        config=config,
        ledger=costs.as_dict(),
        seconds=slowed / (UTILISATION * matmul_rate(config.device, config.threads)),
        memory_bytes=ledger.memory_bytes(config, costs.parameters),
        disk_bytes=ledger.disk_bytes(costs.parameters),
    )


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
