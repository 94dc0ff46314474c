"""A suite as the list of its cells, with what each will cost. Nothing is run or written."""

import time
from dataclasses import dataclass
from functools import cache

import torch

from depthbench import ledger
from depthbench.config import CellConfig, CorpusRef, DesignRef, Loop, Shape
from depthbench.designs import lay_out_parts
from depthbench.errors import InputError
from depthbench.inputs import validated
from depthbench.shapes import total_parameters
from depthbench.suite import Suite

TOTAL_TOLERANCE = 0.005
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


@dataclass(frozen=True)
class Plan:
    """All cells of a suite, by shape, then design, loop and seed."""

    cells: list[PlannedCell]


def plan(suite: Suite, corpus: CorpusRef) -> Plan:
    """Every design, shape, loop and seed together. Raises `InputError` for what cannot match."""
    _check_vocabulary(suite, corpus)
    cells = [
        _planned(_config(suite, corpus, design, shape, loop, seed))
        for shape in suite.ladder.shapes
        for design in suite.designs
        for loop in suite.loops
        for seed in suite.seeds
    ]
    return Plan(cells)


def matched_shape(
    design: DesignRef, shape: Shape, vocab_size: int, norm_eps: float, loop: Loop | None = None
) -> Shape:
    """`shape` with the MLP narrowed until the total is Pre-LN's again, within half a percent."""
    laid_out = lay_out_parts(design, shape, norm_eps, loop)
    added = sum(part.num_extra_params() for part in laid_out.values())
    per_column = 3 * shape.d_model * shape.layers
    narrower = shape.ffn - round(added / per_column)
    if narrower < 1:
        raise InputError(
            f"match = 'total': {design.name} adds {added:,} parameters at L{shape.layers} "
            f"d{shape.d_model}, more than its MLP has: use match = 'shape' or a larger shape"
        )
    matched = shape.model_copy(update={"ffn": narrower})
    target = total_parameters(shape, vocab_size)
    miss = (total_parameters(matched, vocab_size) + added) / target - 1
    if abs(miss) > TOTAL_TOLERANCE:
        raise InputError(
            f"match = 'total': {design.name} at L{shape.layers} d{shape.d_model} misses Pre-LN's "
            f"total by {miss:+.2%}, and one column of the MLP is {per_column / target:.2%}: "
            "use match = 'shape' or a larger shape"
        )
    return matched


def _check_vocabulary(suite: Suite, corpus: CorpusRef) -> None:
    ladder = suite.ladder
    if ladder.match_on != "total" or corpus.vocab_size == ladder.vocab_size:
        return
    for shape in ladder.shapes:
        miss = total_parameters(shape, corpus.vocab_size) / ladder.target - 1
        if abs(miss) > ladder.tolerance:
            raise InputError(
                f"ladder {ladder.name} is matched for a vocabulary of {ladder.vocab_size:,}; with "
                f"the {corpus.vocab_size:,} of {corpus.name}, L{shape.layers} misses the target by "
                f"{miss:+.1%} (allowed {ladder.tolerance:.1%}): solve a ladder for this vocabulary"
            )


def _config(
    suite: Suite,
    corpus: CorpusRef,
    design: DesignRef,
    shape: Shape,
    loop: Loop | None,
    seed: int,
) -> CellConfig:
    matched = shape
    if suite.match == "total":
        matched = matched_shape(design, shape, corpus.vocab_size, suite.norm_eps, loop)
    fields = {
        "suite": suite.name,
        "ladder": suite.ladder.name,
        "design": design,
        "shape": matched,
        "match": suite.match,
        "loop": loop,
        "corpus": corpus,
        "sequence_length": suite.sequence_length,
        "batch_size": suite.batch_size,
        "micro_batch_size": suite.micro_batch_size,
        "steps": 1,
        "budget": "flops" if suite.budget.flops is not None else "tokens",
        "optimizer": suite.optimizer_for(design.name),
        "evaluation": suite.evaluation,
        "measures": suite.measures,
        "norm_eps": suite.norm_eps,
        "precision": suite.precision,
        "device": suite.device,
        "compile": suite.compile,
        "threads": suite.threads,
        "seed": seed,
    }
    one_step = validated(CellConfig, fields, f"{design.name} at L{shape.layers}")
    return one_step.model_copy(update={"steps": _steps(suite, one_step, shape)})


def _steps(suite: Suite, config: CellConfig, shape: Shape) -> int:
    """Whole steps within the budget. Tokens per parameter count Pre-LN's total at that shape."""
    budget = suite.budget
    if budget.tokens is not None:
        tokens = float(budget.tokens)
    elif budget.tokens_per_parameter is not None:
        tokens = budget.tokens_per_parameter * total_parameters(shape, config.corpus.vocab_size)
    else:
        tokens = (budget.flops or 0.0) / ledger.ledger(config).train_flops_per_token
    steps = int(tokens // config.tokens_per_step)
    if steps < 1:
        raise InputError(
            f"the budget buys {tokens:,.0f} tokens for {config.design.name} at L{shape.layers}, "
            f"less than one step of {config.tokens_per_step:,}: raise it"
        )
    return steps


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
