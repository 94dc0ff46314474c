"""What a design costs against aspect ratio, and how each number was had."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from depthbench.report.lines import NO_RESULT, Best, Blank, Line, Spread, relative_speed
from depthbench.report.panels import Panel, panel
from depthbench.report.series import Look, Series
from depthbench.report.tables import DESIGN, NO_LEDGER, Column, Row, first_known, ledger_value
from depthbench.report.values import Footnotes, Value, count, duration

NOT_RECORDED = "the version of depthbench that ran this line did not record it"


@dataclass(frozen=True)
class Cost:
    """One kind of cost: a column of the rows, its table column, and the title of its panel."""

    name: str
    column: Column
    title: str
    unit: str
    formula: bool
    ticks: Callable[[float], str] = count


COSTS = (
    Cost(
        "train_flops_per_token",
        Column(
            "Train FLOPs/token",
            "By formula, from shape and design: three times the forward pass (products with every "
            "weight matrix and the head, the causal half of attention, the design's own mixing), "
            "at the training length.",
        ),
        "Training FLOPs per token",
        "FLOPs",
        True,
    ),
    Cost(
        "prefill_flops",
        Column(
            "Prefill FLOPs",
            "By formula: one sequence of 4096 tokens read at once, 2·N·T + 2·K·d·T² with N the "
            "parameters of the K blocks, plus the design's mixing; without the head.",
        ),
        "Prefill FLOPs, one sequence of 4096",
        "FLOPs",
        True,
    ),
    Cost(
        "kv_cache_bytes",
        Column(
            "KV cache",
            "By formula: bytes of keys and values of one sequence of 4096 tokens in bf16. Designs "
            "work on each token alone, so all have the same.",
        ),
        "KV cache, one sequence of 4096",
        "bytes",
        True,
    ),
    Cost(
        "activation_bytes",
        Column(
            "Activations",
            "Counted in the run: bytes that the forward pass of one micro-batch keeps for its "
            "backward pass, without the parameters. The same on every machine of one kind.",
        ),
        "Activations of a micro-batch",
        "bytes",
        False,
    ),
    Cost(
        "device_hours",
        Column(
            "Device hours",
            "Measured on the host that ran it: hours from first to last step on one device, with "
            "evaluations and checkpoints in between. Cells that run side by side share it.",
        ),
        "Device time of a run",
        "time",
        False,
        duration,
    ),
    Cost(
        "peak_memory_bytes",
        Column(
            "Peak memory",
            "Measured. On the CPU the high-water mark of resident memory of the cell's process, "
            "Python and PyTorch included; on a GPU the allocator's.",
        ),
        "Peak memory of the process",
        "bytes",
        False,
    ),
)
STEP = Column(
    "Step",
    "Measured on the host that ran it: mean seconds of an optimiser step, without evaluations.",
)
RELATIVE_STEP = Column(
    "Step / Pre-LN",
    "That time over Pre-LN's of the same shape, host, device, threads and suite. Cells that run "
    "side by side disturb each other: read the first digit.",
)
COST_COLUMNS = (
    DESIGN,
    Column("Shape", "Decoder blocks (L) and model width (d).", False),
    *(cost.column for cost in COSTS),
    STEP,
    RELATIVE_STEP,
    Column("Host", "Where its finished runs ran: times of different hosts do not compare.", False),
)


def relative_step(line: Line, lines: Sequence[Line]) -> float | Blank:
    """Seconds of a step over Pre-LN's: all runs of a group have the same tokens in a step."""
    speed = relative_speed(line, lines)
    return speed if isinstance(speed, Blank) else 1 / speed


def hosts(lines: Sequence[Line]) -> list[str]:
    """Where finished runs ran."""
    return sorted({host for line in lines for host in _hosts(line)})


def _hosts(line: Line) -> list[str]:
    known = {(r["host"], r["device"], r["threads"]) for r in line.done if r["host"]}
    return sorted(f"{host} ({device}, {threads} threads)" for host, device, threads in known)


def cost_panels(lines: Sequence[Line], best: Best, order: Sequence[Series]) -> list[Panel]:
    """One panel for each cost that was recorded; hours only where one host ran all."""
    shown = [
        panel(cost.name, cost.title, cost.unit, best, order, _value_of(cost), ticks=cost.ticks)
        for cost in COSTS
        if cost.name != "device_hours" or len(hosts(lines)) < 2
    ]

    def step(line: Line) -> Spread | Blank:
        ratio = relative_step(line, lines)
        return ratio if isinstance(ratio, Blank) else Spread(ratio, None, len(line.done))

    title = "Step time over Pre-LN's at the same shape"
    shown.append(panel("relative_step", title, "times", best, order, step))
    return [panel for panel in shown if panel.values]


def _value_of(cost: Cost) -> Callable[[Line], Spread | Blank]:
    def value(line: Line) -> Spread | Blank:
        if not cost.formula:
            return line.mean(cost.name)
        known = first_known(line, cost.name)
        return Blank(NO_LEDGER) if known is None else Spread(known, None, len(line.done))

    return value


def cost_rows(lines: Sequence[Line], looks: Mapping[Series, Look], notes: Footnotes) -> list[Row]:
    """Values in the order of `COST_COLUMNS`."""
    order = list(looks)
    rows = []
    for place, line in enumerate(lines):
        values = [Value(looks[line.series].label, looks[line.series].summary)]
        values.append(Value(line.shape.label))
        for cost in COSTS:
            value = ledger_value if cost.formula else _measured
            values.append(value(line, cost.name, notes))
        values.append(_measured(line, "step_seconds", notes))
        ratio = relative_step(line, lines)
        values.append(notes.blank(ratio) if isinstance(ratio, Blank) else Value(f"{ratio:.2f} ×"))
        where = "; ".join(_hosts(line))
        values.append(Value(where) if where else notes.blank(_why(line)))
        opens = place > 0 and line.shape != lines[place - 1].shape
        rows.append(Row(order.index(line.series), values, opens))
    return rows


def _measured(line: Line, column: str, notes: Footnotes) -> Value:
    known = [record[column] for record in line.done if record[column] is not None]
    if not known:
        return notes.blank(_why(line))
    mean = fmean(known)
    return Value(count(mean), f"{mean:,.6g}")


def _why(line: Line) -> str:
    return NOT_RECORDED if line.done else NO_RESULT
