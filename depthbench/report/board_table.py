"""The leaderboard as a table of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from depthbench.report.domains import title_of
from depthbench.report.entries import COST_NAMES, Entries, Entry, Number
from depthbench.report.lines import Blank
from depthbench.report.series import Look, Series
from depthbench.report.tables import DESIGN, Column, Row, estimate_value, rank_value
from depthbench.report.values import MINUS, Footnotes, Value, count, joined, shortened
from depthbench.statistics import Estimate

_INTERVAL = "Below it the 95 % interval"
RANK = Column(
    "Rank",
    "One plus the number of designs that are better beyond noise: whose paired difference stays "
    "below zero when all pairs are tested together (Holm, 5 %); after the dash the last rank that "
    "noise leaves open. So designs that nothing tells apart share the first, and noisy runs make a "
    "long range. A diverged run ranks a design below all without one.",
)
FAMILY = Column(
    "Family", "Kind of rule: baseline, norm and scaling, streams, cross-layer access.", False, True
)
STATUS = Column(
    "Status",
    "done; diverged, with the step; incomplete: runs are missing or failed; rate at edge: the best "
    "learning rate was the outermost that was tried, so the design is not ranked.",
    False,
    True,
)
_MEASURED = (
    Column(
        "− Pre-LN",
        "Loss minus Pre-LN's, nats per token, paired by seed, the mean over the shapes. Below zero "
        f"is better. {_INTERVAL} (Student's t).",
    ),
    Column(
        "Slope",
        "Depth benefit: least-squares change of the loss per halving of the aspect ratio d_model / "
        f"layers, so towards deep and narrow. Below zero depth helps. {_INTERVAL} (bootstrap "
        "stratified by shape).",
    ),
    Column(
        "Change",
        "Loss at the deepest shape minus loss at the shallowest. Below zero depth helps. "
        f"{_INTERVAL} (the same bootstrap).",
    ),
    Column(
        "Change − Pre-LN's",
        "That change minus Pre-LN's, paired by seed: below zero the design makes more of depth.",
    ),
)
_COSTS = (
    Column(
        "FLOPs",
        "Training FLOPs per token over Pre-LN's of the same shape, by formula, mean. The hints of "
        "this column and the next two have the amounts.",
    ),
    Column(
        "Speed",
        "Training tokens per second over Pre-LN's of the same shape, host, device, threads and "
        "suite, mean. Cells that run side by side disturb each other: read the first digit.",
    ),
    Column(
        "Activations", "Bytes kept for the backward pass over Pre-LN's of the same shape, mean."
    ),
    Column("Added", "Parameters beyond Pre-LN's over those in its blocks, at the shape of most."),
)
_UNITS = dict(zip(COST_NAMES, ("FLOPs per token", "tokens per second", "bytes"), strict=True))
_ABOUT = (
    Column("Seeds", "Finished runs at a shape, one per seed; their numbers in the hint."),
    Column(
        "Rate",
        "Peak learning rate at the shallowest and the deepest shape. Below: tuned on seeds that "
        "are not scored, interpolated between tuned shapes, or given; the hint has every shape.",
    ),
    Column(
        "Conformance",
        "What `depthbench check` had said of the design when its runs ended: conforms, or what "
        "failed.",
        False,
        True,
    ),
    Column("Hardware", "Host, device and threads of its finished runs.", False),
)


def board_columns(entries: Entries) -> tuple[Column, ...]:
    """The columns of one section: domains and late pairs as its rows have them."""
    late = [
        replace(column, meaning=f"{column.meaning} Mean over seeds at the deepest probed shape.")
        for column in entries.late.values()
    ]
    domains = [
        Column(title_of(name), f"{title_of(name)}: nats per target token, mean over the shapes.")
        for name in entries.domains
    ]
    return (
        DESIGN,
        RANK,
        *_MEASURED,
        STATUS,
        FAMILY,
        *domains,
        *late,
        *_COSTS,
        *_ABOUT,
    )


def board_rows(entries: Entries, looks: Mapping[Series, Look], notes: Footnotes) -> list[Row]:
    """Values in the order of `board_columns`."""
    order = list(looks)
    by_difference = _scale([entry.standing.difference for entry in entries.entries])
    by_change = _scale([entry.standing.change for entry in entries.entries])
    rows = []
    for entry in entries.entries:
        standing, look = entry.standing, looks[entry.standing.series]
        values = [
            Value(look.label, look.summary),
            _rank(entry, looks, notes),
            estimate_value(standing.difference, notes, by_difference),
            estimate_value(standing.slope, notes),
            estimate_value(standing.change, notes, by_change),
            estimate_value(standing.change_beyond, notes),
            Value(
                entry.status, entry.details, below=shortened(entry.details, 80), kind=entry.status
            ),
            Value(look.family, kind=look.family),
            *(_number(entry.domains[name], notes, "{:.3f}") for name in entries.domains),
            *(_share(entry.late[name], notes) for name in entries.late),
            *(_cost(entry, name, notes) for name in COST_NAMES),
            _number(entry.added_share, notes, "{:.1%}"),
            _seeds(entry),
            _rates(entry),
            _badge(entry, notes),
            _where(entry, notes),
        ]
        rows.append(Row(order.index(standing.series), values))
    return rows


def _rank(entry: Entry, looks: Mapping[Series, Look], notes: Footnotes) -> Value:
    standing = entry.standing
    if standing.rank is None:
        return notes.blank(standing.why_unranked or "not known")
    behind = joined(looks[series].label for series in standing.behind)
    title = f"behind {behind}" if behind else "nothing is better beyond noise"
    return rank_value(standing.rank, standing.worst, title)


def _scale(found: Sequence[Estimate]) -> float:
    """Half the room of bars: the largest end, unless it would make the common ones vanish."""
    ends = [max(abs(e.low), abs(e.high)) for e in found if e.low is not None and e.high is not None]
    return min(max(ends), 4 * median(ends)) if ends else 0.0


def _cost(entry: Entry, name: str, notes: Footnotes) -> Value:
    ratio, amount = entry.costs[name], entry.amounts[name]
    if isinstance(ratio, Blank):
        return notes.blank(ratio)
    words = "" if isinstance(amount, Blank) else f"{count(amount)} {_UNITS[name]}, mean over shapes"
    return Value(f"{ratio:.2f} ×", words, order=ratio)


def _number(value: Number, notes: Footnotes, form: str) -> Value:
    if isinstance(value, Blank):
        return notes.blank(value)
    return Value(form.format(value).replace("-", MINUS), order=value)


def _share(value: Number, notes: Footnotes) -> Value:
    if isinstance(value, Blank):
        return notes.blank(value)
    return Value(f"{value:.2f}", order=value)


def _seeds(entry: Entry) -> Value:
    numbers = joined(str(seed) for seed in entry.seeds) or "none"
    return Value(entry.seeds_text, f"seeds {numbers}", order=entry.num_seeds[0])


def _rates(entry: Entry) -> Value:
    each = "; ".join(f"{shape.label}: {rate:.3g}, {how}" for shape, rate, how in entry.rates)
    ends = dict.fromkeys(f"{rate:.3g}" for _, rate, _ in (entry.rates[0], entry.rates[-1]))
    kinds = joined(dict.fromkeys(how for _, _, how in entry.rates))
    return Value(" → ".join(ends), each, below=kinds, order=entry.rates[-1][1])


def _badge(entry: Entry, notes: Footnotes) -> Value:
    found = entry.conformance
    if isinstance(found, Blank):
        return notes.blank(found)
    return Value(
        shortened(found, 80), found, kind="conforms" if found == "conforms" else "does not"
    )


def _where(entry: Entry, notes: Footnotes) -> Value:
    return (
        Value("; ".join(entry.hosts)) if entry.hosts else notes.blank("no run of it has finished")
    )
