"""The table of every line, and what all tables are made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from depthbench.report.cells import Cells, cells_of, why_unprobed
from depthbench.report.lines import (
    NO_RESULT,
    Best,
    Blank,
    Line,
    ShapeKey,
    Spread,
    delta,
    relative_speed,
    status_text,
)
from depthbench.report.series import Look, Series
from depthbench.report.values import Footnotes, Value, count, mean_text, rank_range, signed
from depthbench.statistics import CellResult, Estimate

NO_LEDGER = "the run ended, or has not come, to where its ledger is written"


@dataclass(frozen=True)
class Column:
    """Head and explanation of one column. `filter`: whether rows are chosen by what it holds."""

    title: str
    meaning: str
    numeric: bool = True
    filter: bool = False


@dataclass(frozen=True)
class Row:
    """One line of a table. `opens` marks the first line of a shape; not all are of one series."""

    series: int | None
    values: list[Value]
    opens: bool = False


OTHER_RATE = "another learning rate stands for the design at this shape"
DESIGN = Column("Design", "The residual rule, with options that differ from its defaults.", False)
LINE_COLUMNS = (
    DESIGN,
    Column(
        "Family",
        "Kind of rule: baseline, norm and scaling, streams, cross-layer access.",
        False,
        True,
    ),
    Column("Shape", "Decoder blocks (L) and model width (d).", False, True),
    Column(
        "Rank",
        "Among the designs at this shape, as the leaderboard's: from the first to the last that "
        "noise leaves open. All pairs at all shapes are tested together (Holm, 2 %).",
    ),
    Column("Aspect", "Aspect ratio, d_model / layers. Smaller is deeper and narrower."),
    Column("Parameters", "All parameters, with embedding and head."),
    Column("Added", "Parameters that the design has beyond Pre-LN of the same shape."),
    Column("Share", "Those over the parameters in Pre-LN's blocks."),
    Column(
        "Loss", "Validation loss in nats per token at the end: mean ± sample deviation over seeds."
    ),
    Column("Seeds", "Finished runs in the mean, one per seed."),
    Column(
        "− Pre-LN",
        "Loss minus Pre-LN's at the same shape, paired by seed. Below zero is better. Below it the "
        "95 % interval.",
    ),
    Column("Bits/byte", "Mean validation loss in bits per byte of text, whatever the tokenizer."),
    Column(
        "Speed",
        "Training tokens per second over Pre-LN's of the same shape, host, device, threads and "
        "suite. Cells that run side by side disturb each other: read the first digit.",
    ),
    Column("FLOPs/token", "Training FLOPs per token, forward and backward, by formula."),
    Column("Rate", "Peak learning rate."),
    Column(
        "Measured",
        "What was measured in each finished run, by seed: probes and domain sets.",
        False,
    ),
    Column("Status", "done, or how far the runs of this line came.", False, True),
)


def line_rows(
    lines: Sequence[Line],
    best: Best,
    looks: Mapping[Series, Look],
    notes: Footnotes,
    cells: Cells,
    judged: Mapping[tuple[Series, ShapeKey], CellResult] | None = None,
) -> list[Row]:
    """Values in the order of `LINE_COLUMNS`. `judged`: ranks and intervals of the best lines."""
    deltas = {id(line): delta(line, best) for line in lines}
    scale = bar_scale(deltas.values())
    order = list(looks)
    rows: list[Row] = []
    for place, line in enumerate(lines):
        look = looks[line.series]
        is_best = best.get((line.series, line.shape)) is line
        found = (judged or {}).get((line.series, line.shape)) if is_best else None
        values = [
            Value(look.label, look.summary),
            Value(look.family, kind=look.family),
            Value(line.shape.label, order=line.shape.layers, kind=line.shape.label),
            _rank_value(found, notes),
            Value(f"{line.shape.aspect_ratio:.3g}"),
            *_ledger_values(line, notes),
            spread_value(line.loss, notes, 4),
            Value(str(len(line.done))),
            _with_interval(spread_value(deltas[id(line)], notes, 4, scale), found),
            _mean_value(line.mean("bits_per_byte"), notes),
            _speed_value(line, lines, notes),
            ledger_value(line, "train_flops_per_token", notes),
            Value(f"{line.learning_rate:.3g}"),
            links(line, cells, notes),
            Value(status_text(line.records), kind=kind_of(line)),
        ]
        opens = place > 0 and line.shape != lines[place - 1].shape
        rows.append(Row(order.index(line.series), values, opens))
    return rows


def links(line: Line, cells: Cells, notes: Footnotes) -> Value:
    """A link to every cell that was measured, named by its seed."""
    found = [cell for cell in cells_of(line, cells) if cell.probes or cell.domains]
    if not found:
        return notes.blank(why_unprobed(line, cells) if line.done else NO_RESULT)
    return Value("", links=tuple((f"#{c.anchor}", f"seed {c.record['seed']}") for c in found))


def rank_value(rank: int, worst: int | None, title: str = "") -> Value:
    """The ranks that noise leaves open, in the order of the first, then of the last."""
    return Value(rank_range(rank, worst), title, order=rank + (worst or rank) / 1e6)


def _rank_value(found: CellResult | None, notes: Footnotes) -> Value:
    if found is None:
        return notes.blank(OTHER_RATE)
    if found.rank is None:
        return notes.blank(found.rank_reason or NO_RESULT)
    return rank_value(found.rank, found.rank_worst)


def _with_interval(value: Value, found: CellResult | None) -> Value:
    if found is None or found.difference.low is None or found.difference.high is None:
        return value
    return replace(value, below=interval(found.difference.low, found.difference.high))


def kind_of(line: Line) -> str:
    """One word on the runs of a line."""
    if line.diverged:
        return "diverged"
    return "done" if line.complete else "incomplete"


def bar_scale(values: Iterable[Spread | Blank]) -> float:
    """What fills a bar: the largest magnitude, unless it would make the common ones vanish."""
    sizes = [abs(value.mean) for value in values if isinstance(value, Spread)]
    return min(max(sizes), 5 * median(sizes)) if sizes else 0.0


def spread_value(
    spread: Spread | Blank, notes: Footnotes, digits: int, scale: float | None = None
) -> Value:
    """Signed if `scale` is given, with a bar of length mean / scale."""
    if isinstance(spread, Blank):
        return notes.blank(spread)
    text = mean_text(spread, digits, sign=scale is not None)
    return Value(text, share=max(-1.0, min(1.0, spread.mean / scale)) if scale else None)


def estimate_value(found: Estimate, notes: Footnotes, scale: float = 0.0) -> Value:
    """The value with its interval below; `scale` is what fills half the room of the bar."""
    if found.value is None:
        return notes.blank(found.reason or "not known")
    text, order = signed(found.value), found.value
    if found.low is None or found.high is None:
        return Value(text, order=order)
    title = f"{found.num} runs or pairs of runs"
    if found.p is not None:
        title += f"; p = {found.p:.2g}"
    if found.p_holm is not None:
        title += f", {found.p_holm:.2g} after Holm over designs"
    title += f"; noise judged by {found.source}" if found.source else ""
    reach = None
    if scale:
        ends = (max(-1.0, min(1.0, end / scale)) for end in (found.low, found.high))
        reach = (next(ends), next(ends))
    return Value(text, title, below=interval(found.low, found.high), order=order, reach=reach)


def interval(low: float, high: float) -> str:
    """`−0.0150 to −0.0098`."""
    return f"{signed(low)} to {signed(high)}"


def _mean_value(spread: Spread | Blank, notes: Footnotes) -> Value:
    return notes.blank(spread) if isinstance(spread, Blank) else Value(f"{spread.mean:.4f}")


def _ledger_values(line: Line, notes: Footnotes) -> list[Value]:
    share = first_known(line, "added_share")
    return [
        ledger_value(line, "parameters", notes),
        ledger_value(line, "added", notes),
        notes.blank(NO_LEDGER) if share is None else Value(f"{100 * share:.1f} %"),
    ]


def ledger_value(line: Line, column: str, notes: Footnotes) -> Value:
    """What a formula gives: the same for all runs of a line."""
    value = first_known(line, column)
    return notes.blank(NO_LEDGER) if value is None else Value(count(value), f"{value:,}")


def first_known(line: Line, column: str) -> float | None:
    known = (record[column] for record in line.records if record[column] is not None)
    return next(known, None)


def _speed_value(line: Line, lines: Sequence[Line], notes: Footnotes) -> Value:
    speed = relative_speed(line, lines)
    return notes.blank(speed) if isinstance(speed, Blank) else Value(f"{speed:.2f} ×")
