"""From a suite to the configs of its cells. Nothing is run or written."""

from collections.abc import Callable, Iterator
from typing import Literal

from depthbench.config import CellConfig, CoreLoop, CorpusRef, DesignRef, Loop, Shape, Tuned
from depthbench.designs import lay_out_parts
from depthbench.errors import InputError
from depthbench.inputs import validated
from depthbench.ledger import ledger
from depthbench.shapes import total_parameters
from depthbench.suite import Suite

TOTAL_TOLERANCE = 0.005


Chosen = Callable[[DesignRef, Loop | None, int], tuple[float, Tuned | None]]


def expand(suite: Suite, corpus: CorpusRef, chosen: Chosen | None = None) -> list[CellConfig]:
    """Cells by part of the suite, shape, design, loop and seed, each followed by its controls.

    A cell that is asked for twice is there once. `chosen` gives the learning rate of a design in a
    loop at a depth, and where it comes from; by default the suite's. Raises `InputError` for what
    cannot match.
    """
    rates = chosen or (lambda design, loop, layers: (suite.rate_for(design.name), None))
    found: dict[str, CellConfig] = {}
    for part in suite.parts():
        _check_vocabulary(part, corpus)
        for shape in part.ladder.shapes:
            for design in part.designs:
                for loop in part.loops:
                    for seed in part.seeds:
                        rate, tuned = rates(design, loop, shape.layers)
                        cell = cell_config(part, corpus, design, shape, loop, seed, rate=rate)
                        cell = cell.model_copy(update={"tuned": tuned})
                        controls = _controls(part, corpus, cell, shape)
                        found |= {config.digest(): config for config in (cell, *controls)}
    return list(found.values())


def _controls(
    suite: Suite, corpus: CorpusRef, cell: CellConfig, shape: Shape
) -> Iterator[CellConfig]:
    """What the suite compares a looped cell with: stacks that share no weights between visits."""
    loop = cell.loop
    if loop is None or loop.forward == 1:
        return

    def without_sharing(blocks: Shape, control: Loop | None) -> CellConfig:
        rate = cell.optimizer.learning_rate
        config = cell_config(suite, corpus, cell.design, blocks, control, cell.seed, rate=rate)
        return config.model_copy(update={"tuned": cell.tuned})

    deep = shape.model_copy(update={"layers": loop.executed_blocks(shape.layers)})
    if "equal-parameters" in suite.controls:
        yield without_sharing(shape, None)
    if "equal-flops" in suite.controls:
        control = without_sharing(deep, None)
        costs = ledger(control).train_flops_per_token * control.tokens_per_step
        steps = max(1, int(ledger(cell).total_flops // costs))
        yield control.model_copy(update={"steps": steps})
    if "untied" in suite.controls:
        if isinstance(loop, CoreLoop):
            untied = loop.model_copy(update={"tied": False, "backward": loop.forward})
            control = without_sharing(shape, untied)
        else:
            control = without_sharing(deep, None)
        yield control.model_copy(update={"steps": cell.steps})


def matched_shape(
    design: DesignRef, shape: Shape, vocab_size: int, norm_eps: float, loop: Loop | None = None
) -> Shape:
    """`shape` with the MLP narrowed until the total is Pre-LN's again, within half a percent."""
    laid_out = lay_out_parts(design, shape, norm_eps, loop)
    added = sum(part.num_extra_params() for part in laid_out.values())
    # An untied loop has more blocks with weights of their own than its shape has.
    num_blocks = sum(part.stack.num_blocks for part in laid_out.values())
    plain = shape.model_copy(update={"layers": num_blocks})
    per_column = 3 * shape.d_model * num_blocks
    narrower = shape.ffn - round(added / per_column)
    if narrower < 1:
        raise InputError(
            f"match = 'total': {design.name} adds {added:,} parameters at L{shape.layers} "
            f"d{shape.d_model}, more than its MLP has: use match = 'shape' or a larger shape"
        )
    matched = shape.model_copy(update={"ffn": narrower})
    target = total_parameters(plain, vocab_size)
    narrowed = plain.model_copy(update={"ffn": narrower})
    miss = (total_parameters(narrowed, vocab_size) + added) / target - 1
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
        deviation = ladder.deviation(total_parameters(shape, corpus.vocab_size))
        if deviation:
            raise InputError(
                f"ladder {ladder.name} is matched for a vocabulary of {ladder.vocab_size:,}; with "
                f"the {corpus.vocab_size:,} of {corpus.name}, L{shape.layers} is {deviation}: "
                "solve a ladder for this vocabulary"
            )


def cell_config(
    suite: Suite,
    corpus: CorpusRef,
    design: DesignRef,
    shape: Shape,
    loop: Loop | None,
    seed: int,
    *,
    rate: float,
    role: Literal["scored", "tuning"] = "scored",
) -> CellConfig:
    """The config of one cell with the suite's budget; a cell for tuning measures nothing else."""
    matched = shape
    if suite.match == "total":
        matched = matched_shape(design, shape, corpus.vocab_size, suite.norm_eps, loop)
    fields = {
        "suite": suite.name,
        "ladder": suite.ladder.name,
        "role": role,
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
        "optimizer": {**suite.optimizer.model_dump(), "learning_rate": rate},
        "evaluation": suite.evaluation,
        "measures": suite.measures if role == "scored" else {},
        "norm_eps": suite.norm_eps,
        "precision": suite.precision,
        "device": suite.device,
        "compile": suite.compile,
        "threads": suite.threads,
        "ranks": suite.ranks,
        "activation_checkpointing": suite.activation_checkpointing,
        "deterministic": suite.deterministic,
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
        tokens = (budget.flops or 0.0) / ledger(config).train_flops_per_token
    steps = int(tokens // config.tokens_per_step)
    if steps < 1:
        raise InputError(
            f"the budget buys {tokens:,.0f} tokens for {config.design.name} at L{shape.layers}, "
            f"less than one step of {config.tokens_per_step:,}: raise it"
        )
    return steps
