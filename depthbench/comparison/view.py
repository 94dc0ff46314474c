"""What is shown of a comparison, in a terminal and on a page alike: sentences and tables."""

from collections.abc import Iterator

from depthbench.comparison import words
from depthbench.comparison.alone import side_by_side
from depthbench.comparison.blocks import Block, Table
from depthbench.comparison.words import Document, design_name
from depthbench.report.values import joined


def blocks(document: Document) -> list[Block]:
    """The comparison, as `document.document` has it, from its first report to its last pair."""
    found = [Block("Reports", sentences=tuple(map(_report, document["reports"])))]
    for pair in document["comparisons"]:
        found += _pair(pair, document)
    if document["alone"]:
        found.append(side_by_side(document["alone"]))
    return found


def _report(report: Document) -> str:
    left_out = []
    if report["num_tuning"]:
        left_out.append(f"{report['num_tuning']} of tuning left out")
    if report["num_damaged"]:
        left_out.append(f"{report['num_damaged']} damaged and left out")
    counts = ", ".join([f"{report['num_rows']} rows", *left_out])
    note = f" {report['note']}" if report["note"] else ""
    return f"{report['label']} is {report['source']}: {counts}.{note}"


def _pair(pair: Document, document: Document) -> Iterator[Block]:
    a, b = pair["before"], pair["after"]
    name = f"{b} against {a}"
    notes = [*_designs_of_one(pair), *_versions(pair, document)]
    if not pair["comparable"]:
        what = f"{a} and {b} are not comparable, and nothing of them is ranked together."
        yield Block(name, (what,), tuple(notes), (_differing(pair),))
        return
    for setting in pair["settings"]:
        fields = ", ".join(f"{k} {v}" for k, v in setting["fields"].items())
        heading = f"{name}: {fields}" if fields else name
        yield Block(heading, *_said(setting, pair), _tables(setting, pair))
    apart = [f"{_apart(part)}." for part in pair["not_compared"]]
    if apart or notes:
        yield Block(f"{name}: what is not compared", sentences=(*notes, *apart))


def _said(setting: Document, pair: Document) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is worse, and what else stands beside the tables of a setting."""
    worse = [f"{design_name(d)}: {d['regression']}." for d in setting["designs"] if d["regression"]]
    say = []
    moved = [d for d in setting["designs"] if d["rank_before"] != d["rank_after"]]
    if moved:
        say.append(
            "Ranks moved: "
            + "; ".join(
                f"{design_name(d)} {words.ranks(d['rank_before'], d['rank_after'])}" for d in moved
            )
            + "."
        )
    elif why := _why_no_ranks(setting):
        say.append(f"No ranks: {why}.")
    else:
        say.append("No rank moved.")
    for kind, label in (("new_runs", pair["after"]), ("gone_runs", pair["before"])):
        if setting[kind]:
            say.append(f"Only in {label}: {words.runs(setting[kind])}.")
    changes = [cell["change"] for design in setting["designs"] for cell in design["cells"]]
    if any(change["value"] and change["low"] is None for change in changes):
        say.append("Some changes have no interval: --tolerance judges them by their size.")
    return tuple(worse), tuple(say)


def _why_no_ranks(setting: Document) -> str | None:
    """The reason, if it is the same for all designs."""
    reasons = {design["rank_reason"] for design in setting["designs"]}
    reason: str | None = reasons.pop() if len(reasons) == 1 else None
    return reason


def _tables(setting: Document, pair: Document) -> tuple[Table, ...]:
    a, b = pair["before"], pair["after"]
    designs = tuple(
        (
            design_name(d),
            words.change(d["change"]),
            words.interval(d["change"]),
            words.p_value(d["change"]),
            d["verdict"],
            words.ranks(d["rank_before"], d["rank_after"]),
            words.speed(d["speed"]),
            "; ".join(_why_blank(d, _why_no_ranks(setting))),
        )
        for d in setting["designs"]
    )
    cells = tuple(
        (
            design_name(d),
            words.shape_name(cell),
            words.loss(cell["before"]),
            words.loss(cell["after"]),
            words.change(cell["change"]),
            words.interval(cell["change"]),
            str(cell["change"]["num"]),
            "; ".join(_cell_notes(cell, pair)),
        )
        for d in setting["designs"]
        for cell in d["cells"]
    )
    columns = ("Design", "Change", "95 %", "p", "Verdict", "Rank", "Tokens/s", "Notes")
    numbers = frozenset({"Change", "95 %", "p", a, b, "Pairs", "Tokens/s", "Rank"})
    return (
        Table(f"Designs: loss in {b} minus loss in {a}, nats per token", columns, designs, numbers),
        Table(
            "Cells: mean loss of the seeds that finished in both",
            ("Design", "Shape", a, b, "Change", "95 %", "Pairs", "Notes"),
            cells,
            numbers,
        ),
    )


def _why_blank(design: Document, said: str | None) -> Iterator[str]:
    if design["change"]["low"] is None and design["change"]["reason"]:
        yield design["change"]["reason"]
    if design["rank_reason"] and design["rank_reason"] != said:
        yield f"no rank: {design['rank_reason']}"
    if design["speed"]["reason"]:
        what = "not of all runs" if design["speed"]["num"] else "not compared"
        yield f"speed {what}: {design['speed']['reason']}"


def _cell_notes(cell: Document, pair: Document) -> Iterator[str]:
    if moved := words.rates(*cell["learning_rates"]):
        yield moved
    for kind, label in (("lost", pair["after"]), ("gained", pair["before"])):
        for run in cell[kind]:
            error = f" ({run['error']})" if run["error"] else ""
            yield f"seed {run['seed']} {kind}: {run['status']} in {label}{error}"
    if cell["change"]["value"] is None:
        yield cell["change"]["reason"]


def _designs_of_one(pair: Document) -> Iterator[str]:
    for kind, label in (("new_designs", pair["after"]), ("gone_designs", pair["before"])):
        if pair[kind]:
            yield f"Designs only in {label}: {joined(map(design_name, pair[kind]))}."


def _versions(pair: Document, document: Document) -> Iterator[str]:
    for versions in pair["versions"]:
        old, new = (joined(map(str, versions[side])) for side in ("before", "after"))
        what = f"{design_name(versions)} has version {old} in {pair['before']} and {new} in "
        if document["ignore_version"]:
            yield f"{what}{pair['after']}: taken for one design."
        else:
            yield f"{what}{pair['after']}: another design; --ignore-version compares them."


def _differing(pair: Document) -> Table:
    rows = tuple(
        (d["field"], words.values(d["before"]), words.values(d["after"])) for d in pair["differing"]
    )
    return Table("Fields that differ", ("Field", pair["before"], pair["after"]), rows)


def _apart(part: Document) -> str:
    fields = "; ".join(
        f"{d['field']}: {words.values(d['before'])} before, {words.values(d['after'])} after"
        for d in part["differing"]
    )
    return f"{part['num_rows']} rows of {part['label']} differ in {fields}"
