"""Tables of a looped part: every stack, and how coherently visits pull at shared weights."""

from collections.abc import Mapping, Sequence

import numpy as np

from depthbench.report.cells import Array, Cell, Cells, cells_of
from depthbench.report.lines import spread, status_text
from depthbench.report.loops import words
from depthbench.report.series import Look, Series
from depthbench.report.stacks import Stack, Stacks, differences
from depthbench.report.tables import (
    DESIGN,
    NO_LEDGER,
    Column,
    Row,
    bar_scale,
    first_known,
    links,
    spread_value,
)
from depthbench.report.values import Footnotes, Value, count, mean_text, number

STACK_COLUMNS = (
    DESIGN,
    Column("Shape", "Blocks (L), counting every looped one once, and model width (d).", False),
    Column(
        "Loop",
        "How blocks repeat: the whole stack, or prelude + core ×T (B: loops with gradients) + "
        "coda; untied: a core with weights of its own for every loop.",
        False,
    ),
    Column("Executed", "Blocks run in one forward pass."),
    Column("N_once", "Parameters used once, without embedding and head."),
    Column("N_rec", "Parameters that loops share, used once in every loop."),
    Column("Tokens", "Tokens of training."),
    Column("FLOPs", "Of the whole training, by formula: attention and head included."),
    Column("Loss", "Validation loss in nats per token at the end: mean ± deviation over seeds."),
    Column("Seeds", "Finished runs in the mean, one per seed."),
    Column(
        "− no loop",
        "Loss minus that of the same stack without a loop, trained on as many tokens: equal "
        "parameters but for what a loop adds. Paired by seed. Below zero the loop is better.",
    ),
    Column(
        "− equal FLOPs",
        "Loss minus that of a stack without a loop of as many blocks and, within a step, as many "
        "training FLOPs: it has more parameters, and as many tokens as those buy. Paired by seed.",
    ),
    Column(
        "− untied",
        "Loss minus that of the stack whose loops have weights of their own, trained on as many "
        "tokens with all gradients. Paired by seed.",
    ),
    Column("Rate", "Peak learning rate."),
    Column("Measured", "What was measured in each finished run, by seed.", False),
    Column("Status", "done, or how far the runs of this stack came.", False),
)
KAPPA_COLUMNS = (
    DESIGN,
    Column("Loop", "How the blocks repeat, whatever shape and budget.", False),
    Column("Cells", "Probed runs in the means, of all shapes and budgets."),
    Column("Visits", "Visits with gradients, B: what κ of a block can reach at most."),
    Column("κ", "Mean over the looped blocks of a run, ± deviation over the runs."),
    Column("Least", "Of any block."),
    Column("Greatest", "Of any block."),
    Column("κ / visits", "1 where all visits pull the same way, 1 / B where they are unrelated."),
)
ALIGNMENT, KAPPA = "alignment", "kappa"


def stack_rows(
    stacks: Stacks, looks: Mapping[Series, Look], notes: Footnotes, cells: Cells
) -> list[Row]:
    """Values in the order of `STACK_COLUMNS`."""
    order = list(looks)
    found = {id(stack): differences(stack, stacks) for stack in stacks.every}
    scale = bar_scale(d for by in found.values() for d in by.values())
    rows: list[Row] = []
    for place, stack in enumerate(stacks.every):
        line, look = stack.line, looks[stack.series]
        values = [
            Value(look.label, look.summary),
            Value(stack.shape.label),
            Value(words(stack.loop)),
            Value(str(stack.executed)),
            _ledger(stack, "N_once", notes),
            _ledger(stack, "N_rec", notes),
            Value(count(stack.tokens), f"{stack.tokens:,}"),
            _ledger(stack, "total_flops", notes),
            spread_value(line.loss, notes, 4),
            Value(str(len(line.done))),
            *(spread_value(d, notes, 4, scale) for d in found[id(stack)].values()),
            Value(f"{line.learning_rate:.3g}"),
            links(line, cells, notes),
            Value(status_text(line.records)),
        ]
        before = stacks.every[place - 1] if place else stack
        opens = (stack.shape, stack.tokens) != (before.shape, before.tokens)
        rows.append(Row(order.index(stack.series), values, opens))
    return rows


def _ledger(stack: Stack, column: str, notes: Footnotes) -> Value:
    value = first_known(stack.line, column)
    return notes.blank(NO_LEDGER) if value is None else Value(count(value), f"{value:,.0f}")


def kappa_rows(
    stacks: Stacks, looks: Mapping[Series, Look], notes: Footnotes, cells: Cells
) -> list[Row]:
    """Values in the order of `KAPPA_COLUMNS`; none where no cell was asked."""
    groups: dict[tuple[Series, str, int], list[Cell]] = {}
    for stack in stacks.best:
        if stack.loop and stack.is_tied and stack.loop.forward > 1:
            key = (stack.series, words(stack.loop), stack.loop.backward)
            groups.setdefault(key, []).extend(cells_of(stack.line, cells))
    asked = any(ALIGNMENT in cell.probes for members in groups.values() for cell in members)
    order = list(looks)
    keys = sorted(groups, key=lambda key: order.index(key[0])) if asked else []
    return [
        Row(order.index(series), _kappa_values(series, text, visits, groups[key], looks, notes))
        for key in keys
        for series, text, visits in (key,)
    ]


def _kappa_values(
    series: Series,
    text: str,
    visits: int,
    members: Sequence[Cell],
    looks: Mapping[Series, Look],
    notes: Footnotes,
) -> list[Value]:
    known = [k for cell in members if (k := kappa_of(cell)) is not None and len(k)]
    head = [Value(looks[series].label, looks[series].summary), Value(text)]
    head += [Value(str(len(known))), Value(str(visits))]
    if not known:
        return [*head, *(notes.blank(_why_no_kappa(members)) for _ in range(4))]
    mean = spread([float(values.mean()) for values in known])
    assert mean
    share = mean.mean / visits
    ends = [min(float(k.min()) for k in known), max(float(k.max()) for k in known)]
    return [
        *head,
        Value(mean_text(mean, 3)),
        *(Value(number(end)) for end in ends),
        Value(f"{share:.2f}", fill=min(1.0, share)),
    ]


def kappa_of(cell: Cell) -> Array | None:
    """κ of the looped blocks. None where the probe has no answer or was not asked."""
    probed = cell.probes.get(ALIGNMENT)
    values = probed.values.get(KAPPA) if probed else None
    return None if values is None else values[np.isfinite(values)]


def _why_no_kappa(members: Sequence[Cell]) -> str:
    if not members:
        return "no run with this loop has finished"
    probed = members[0].probes.get(ALIGNMENT)
    return (probed.reason if probed else None) or members[0].why_no_probe(ALIGNMENT)
