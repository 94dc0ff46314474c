"""What a leaderboard says of each design beside its place: scores, costs, rates, where it ran."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from depthbench.report.domains import Block
from depthbench.report.efficiency import NOT_RECORDED, hosts
from depthbench.report.lines import Best, Blank, Line, ShapeKey, Spread, relative_speed, status_text
from depthbench.report.probes import Probes
from depthbench.report.series import Series
from depthbench.report.standings import Board, Standing, tuned_of
from depthbench.report.summary import summaries
from depthbench.report.tables import NO_LEDGER, Column, first_known
from depthbench.report.values import joined

NOT_CHECKED = "not checked when its runs ended: `depthbench check` looks for faults of a design"
NO_PROBE = "the cell that stands for the design was not asked for this probe"
COST_NAMES = ("train_flops_per_token", "tokens_per_second", "activation_bytes")
Number = float | Blank


@dataclass(frozen=True)
class Entry:
    """One design. `domains`: nats per target token, the mean over the ladder; `late`: fractions at
    the deepest probed shape; `costs`: over Pre-LN's at the same shape, the mean over the ladder;
    `amounts`: the costs themselves, the mean over the ladder.

    `status`: `done`, `diverged`, `incomplete` or `rate at edge`; `details`: shapes that are not
    done, or where the rate lay at the edge.
    """

    standing: Standing
    domains: Mapping[str, Number]
    late: Mapping[str, Number]
    costs: Mapping[str, Number]
    amounts: Mapping[str, Number]
    added_share: Number
    seeds: tuple[int, ...]
    num_seeds: tuple[int, int]
    rates: tuple[tuple[ShapeKey, float, str], ...]
    conformance: str | Blank
    status: str
    details: str
    hosts: tuple[str, ...]

    @property
    def seeds_text(self) -> str:
        """How many seeds finished at a shape."""
        least, most = self.num_seeds
        return str(least) if least == most else f"{least} to {most}"


@dataclass(frozen=True)
class Entries:
    """Every design of a section, in order. `late`: columns of the fractions, by name in the rows.
    `evaluation`: hash of the domain sets behind the scores; empty if there are none."""

    board: Board
    entries: list[Entry]
    domains: Sequence[str]
    evaluation: str
    late: Mapping[str, Column]


def entries_of(
    board: Board,
    lines: Sequence[Line],
    best: Best,
    blocks: Sequence[Block],
    probes: Probes,
) -> Entries:
    """The leaderboard's lines; domain scores are of the evaluation that most rows share."""
    block = blocks[0] if blocks else None
    late = summaries(probes, late=True)
    found = [_entry(s, board, lines, best, block, probes, list(late)) for s in board.standings]
    names = block.domains if block else []
    return Entries(board, found, names, block.evaluation if block else "", late)


def _entry(
    standing: Standing,
    board: Board,
    lines: Sequence[Line],
    best: Best,
    block: Block | None,
    probes: Probes,
    late: Sequence[str],
) -> Entry:
    series, own = standing.series, standing.lines
    shares = [
        share for line in own.values() if (share := first_known(line, "added_share")) is not None
    ]
    counts = [len(own[shape].done) if shape in own else 0 for shape in board.ladder]
    status, details = _status(standing)
    return Entry(
        standing,
        {
            name: _domain(name, series, board.ladder, block)
            for name in (block.domains if block else ())
        },
        {name: _late(name, series, probes) for name in late},
        {name: _cost(name, series, board.ladder, lines, best) for name in COST_NAMES},
        {name: _amount(name, own, board.ladder) for name in COST_NAMES},
        max(shares) if shares else Blank(NO_LEDGER),
        tuple(sorted({record["seed"] for line in own.values() for record in line.done})),
        (min(counts, default=0), max(counts, default=0)),
        tuple((shape, line.learning_rate, _how(line)) for shape, line in own.items()),
        _conformance(standing),
        status,
        details,
        tuple(hosts(list(own.values()))),
    )


def _domain(name: str, series: Series, ladder: Sequence[ShapeKey], block: Block | None) -> Number:
    means = []
    for shape in ladder:
        line = block.best.get((series, shape)) if block else None
        mean = line.mean(f"domain/{name}") if line else None
        if not isinstance(mean, Spread):
            return Blank(f"{shape.label} was not scored on this evaluation")
        means.append(mean.mean)
    return fmean(means) if means else Blank("no shape that most designs have finished")


def _late(name: str, series: Series, probes: Probes) -> Number:
    chosen = next((c for c in probes.chosen if c.series == series), None)
    if chosen is None or chosen.cell is None:
        return Blank(chosen.note if chosen else NO_PROBE)
    mean = chosen.line.mean(name)
    if isinstance(mean, Spread):
        return mean.mean
    probed = chosen.cell.probes.get(name.split("/")[1])
    why = probed.reason if probed else chosen.cell.why_no_probe(name.split("/")[1])
    return Blank(why or NO_PROBE)


def _cost(
    name: str, series: Series, ladder: Sequence[ShapeKey], lines: Sequence[Line], best: Best
) -> Number:
    """The mean of ratios to Pre-LN over the ladder's shapes."""
    ratios = []
    for shape in ladder:
        line = best.get((series, shape))
        base = next((b for (s, at), b in best.items() if s.is_baseline and at == shape), None)
        if line is None:
            return Blank(f"{shape.label}: not run")
        if base is None:
            return Blank(f"{shape.label}: Pre-LN was not run")
        ratio = (
            relative_speed(line, lines) if name == "tokens_per_second" else _over(line, base, name)
        )
        if isinstance(ratio, Blank):
            return ratio
        ratios.append(ratio)
    return fmean(ratios) if ratios else Blank("no shape that most designs have finished")


def _amount(name: str, own: Mapping[ShapeKey, Line], ladder: Sequence[ShapeKey]) -> Number:
    found = [first_known(own[shape], name) if shape in own else None for shape in ladder]
    known = [value for value in found if value is not None]
    return fmean(known) if known and len(known) == len(found) else Blank(NOT_RECORDED)


def _over(line: Line, base: Line, column: str) -> Number:
    own, other = first_known(line, column), first_known(base, column)
    return own / other if own and other else Blank(NOT_RECORDED if line.done else NO_LEDGER)


def _how(line: Line) -> str:
    """Where the learning rate comes from."""
    record = line.records[0]
    if not record.get("tuned"):
        return "given"
    how = "interpolated" if tuned_of(record)["interpolated"] else "tuned"
    return f"{how}, at the edge" if record.get("rate_at_edge") else how


def _conformance(standing: Standing) -> str | Blank:
    known = {record.get("conformance") for record in standing.records if record["status"] == "done"}
    found = sorted(text for text in known if text)
    if not found:
        return Blank(NOT_CHECKED)
    return "; ".join(found) + ("; not checked for some runs" if None in known else "")


def _ended(line: Line) -> str:
    """How the runs of a line ended, of many diverged ones the first step."""
    lost = [record for record in line.records if record["status"] == "diverged"]
    if not lost or len(line.records) == 1:
        return status_text(line.records)
    steps = [r["diverged_step"] for r in lost if r["diverged_step"] is not None]
    first = f", first at step {min(steps):,}" if steps else ""
    return f"{len(lost)} of {len(line.records)} diverged{first}"


def _status(standing: Standing) -> tuple[str, str]:
    statuses = {record["status"] for record in standing.records}
    broken = [
        f"{shape.label}: {_ended(line)}"
        for shape, line in standing.lines.items()
        if any(record["status"] != "done" for record in line.records)
    ]
    if "diverged" in statuses:
        return "diverged", "; ".join(broken)
    if statuses != {"done"}:
        return "incomplete", "; ".join(broken)
    if standing.at_edge:
        return "rate at edge", joined(shape.label for shape in standing.at_edge)
    return "done", ""
