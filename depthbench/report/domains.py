"""Domain NLL against aspect ratio: only rows that were scored on the same items stand together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from depthbench.report.cells import Cell, Cells, cells_of
from depthbench.report.lines import Best, Line, Spread, best_lines, lines_of, status_text
from depthbench.report.panels import NATS, Panel, panel
from depthbench.report.series import Look, Series
from depthbench.report.tables import DESIGN, Column, Row
from depthbench.report.values import Footnotes, Value, mean_text
from depthbench.store import Record

OTHER_EVALUATION = "scored on another evaluation: its own figure and table show it"
DOMAIN_MEANINGS = (
    Column("Shape", "Decoder blocks (L) and model width (d).", False),
    Column("Seeds", "Scored runs in the means."),
    Column("Domain", "Nats per target token, mean of the domain's sets, ± deviation over seeds."),
    Column("95 %", "Bootstrap interval of that over items, mean over seeds."),
    Column("Bits/byte", "Bits per byte of target, mean of the domain's sets."),
)
SET_COLUMNS = (
    Column("Set", "An evaluation set: prompts and the targets that are scored.", False),
    Column("Domain", "Whose average it enters, each set with the same weight.", False),
    Column("Items", "Scored items."),
    Column("Tokens", "Target tokens: what nats are averaged over."),
    Column("Bytes", "Bytes of the targets: what bits are averaged over."),
    Column("Cut prompts", "Items whose prompt lost its beginning: context is shorter than they."),
    Column("Cut targets", "Items whose target alone exceeds the context; its end is not scored."),
    Column("State", "scored, or why the set could not be had.", False),
)


@dataclass(frozen=True)
class Block:
    """Rows of one evaluation. `cells`: those that were scored on it."""

    evaluation: str
    domains: list[str]
    lines: list[Line]
    best: Best
    cells: list[Cell]


def domain_blocks(records: Iterable[Record], cells: Cells) -> list[Block]:
    """One block for every evaluation hash among the records, the one of most rows first."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.get("domains"):
            groups.setdefault(record["domains"], []).append(record)
    return [
        _block(evaluation, members, cells)
        for evaluation, members in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0]))
    ]


def _block(evaluation: str, members: Sequence[Record], cells: Cells) -> Block:
    lines = lines_of(members)
    scored = [cells[record["path"]] for record in members if record["path"] in cells]
    listed = [name for cell in scored for name in (cell.domains or {"domains": {}})["domains"]]
    known = [key[7:] for key in members[0] if key.startswith("domain/")]
    filled = [n for n in known if any(r[f"domain/{n}"] is not None for r in members)]
    names = list(dict.fromkeys([*(n for n in listed if n in filled), *filled]))
    return Block(evaluation, names, lines, best_lines(lines), scored)


def title_of(domain: str) -> str:
    """As a heading writes it."""
    return {"stem": "STEM"}.get(domain, domain.capitalize())


def domain_panels(block: Block, order: Sequence[Series]) -> list[Panel]:
    """One panel a domain; bars are the bootstrap intervals."""
    return [
        panel(
            f"domain-{name}",
            title_of(name),
            NATS,
            block.best,
            order,
            _mean_of(f"domain/{name}"),
            bars=_interval_of(name),
        )
        for name in block.domains
    ]


def _mean_of(column: str) -> Callable[[Line], Spread | str]:
    return lambda line: line.mean(column)


def _interval_of(name: str) -> Callable[[Line], tuple[float, float] | None]:
    def interval(line: Line) -> tuple[float, float] | None:
        ends = [line.mean(f"domain_{end}/{name}") for end in ("low", "high")]
        low, high = (end.mean if isinstance(end, Spread) else None for end in ends)
        return None if low is None or high is None else (low, high)

    return interval


def domain_columns(block: Block) -> list[Column]:
    """Three columns a domain: nats with their deviation over seeds, interval, bits per byte."""
    shape, seeds, *kinds = DOMAIN_MEANINGS
    columns = [DESIGN, shape, seeds]
    for name in block.domains:
        titles = (title_of(name), f"{title_of(name)} 95 %", f"{title_of(name)} bits/byte")
        columns += [Column(t, kind.meaning) for t, kind in zip(titles, kinds, strict=True)]
    return columns


def domain_rows(
    block: Block,
    every: Sequence[Line],
    cells: Cells,
    looks: Mapping[Series, Look],
    notes: Footnotes,
) -> list[Row]:
    """Values in the order of `domain_columns`, one row for each of the section's lines `every`."""
    own = {(line.series, line.shape, line.learning_rate): line for line in block.lines}
    order = list(looks)
    rows = []
    for place, line in enumerate(every):
        found = own.get((line.series, line.shape, line.learning_rate))
        values = [Value(looks[line.series].label, looks[line.series].summary)]
        values += [Value(line.shape.label), Value(str(len(found.done) if found else 0))]
        for name in block.domains:
            values += _three(name, found, _why(line, cells), notes)
        opens = place > 0 and line.shape != every[place - 1].shape
        rows.append(Row(order.index(line.series), values, opens))
    return rows


def _three(name: str, line: Line | None, why: str, notes: Footnotes) -> list[Value]:
    mean = line.mean(f"domain/{name}") if line else None
    if line is None or not isinstance(mean, Spread):
        reason = why if line is None else "no set of this domain was scored"
        return [notes.blank(reason) for _ in range(3)]
    low, high = _interval_of(name)(line) or (mean.mean, mean.mean)
    bits = fmean(r[f"domain_bpb/{name}"] for r in line.done)
    return [Value(mean_text(mean, 3)), Value(f"{low:.3f} to {high:.3f}"), Value(f"{bits:.3f}")]


def _why(line: Line, cells: Cells) -> str:
    found = cells_of(line, cells)
    if not found:
        return status_text(line.records)
    scored = any(cell.domains for cell in found)
    return OTHER_EVALUATION if scored else found[0].why_no_domains


def set_rows(block: Block, notes: Footnotes) -> list[Row]:
    """Values in the order of `SET_COLUMNS`: what was scored, then what could not be had."""
    sets = {n: s for cell in block.cells for n, s in (cell.domains or {}).get("sets", {}).items()}
    missing = {
        n: why
        for cell in block.cells
        for n, why in (cell.domains or {}).get("unavailable", {}).items()
        if n not in sets
    }
    numbers = ("items", "tokens", "bytes", "truncated_prompts", "truncated_targets")
    rows = [
        Row(
            None,
            [
                Value(entry["title"], name),
                Value(title_of(entry["domain"])),
                *(Value(f"{entry[number]:,}") for number in numbers),
                Value("scored"),
            ],
        )
        for name, entry in sorted(sets.items(), key=lambda s: block.domains.index(s[1]["domain"]))
    ]
    for name, why in missing.items():
        blanks = [notes.blank("the set could not be had") for _ in range(len(numbers) + 1)]
        rows.append(Row(None, [Value(name), *blanks, Value(f"not there: {why}")]))
    return rows
