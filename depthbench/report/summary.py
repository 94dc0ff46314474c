"""What probes sum up for each design, how they are defined, and who has no answer."""

from collections.abc import Iterable, Mapping

from depthbench.report.cells import NO_NUMBER, Document
from depthbench.report.lines import Spread
from depthbench.report.probes import Chosen, Probes
from depthbench.report.series import Look, Series
from depthbench.report.tables import DESIGN, Column, Row
from depthbench.report.values import Footnotes, Value, joined, mean_text

SUMMARY_HEAD = (
    DESIGN,
    Column("Shape", "The deepest shape at which the design was probed.", False),
    Column("Seeds", "Probed runs in the means."),
)
CELL_HEAD = (
    DESIGN,
    Column("Shape", "Of the cell that stands for the design.", False),
    SUMMARY_HEAD[2],
)


def summaries(probes: Probes, late: bool) -> dict[str, Column]:
    """Column of every number that a probe sums up, by its name in the rows.

    The fractions of `late` pairs, which have bars, stand in a table of their own.
    """
    columns: dict[str, Column] = {}
    for name in probes.names:
        for chosen in probes.answered:
            probed = chosen.cell.probes.get(name) if chosen.cell else None
            for what in probed.document["summary"] if probed else ():
                if probed and is_late(what) == late:
                    title = f"{probed.title}: {what.replace('_', ' ')}"
                    column = Column(title, _meaning(probed.document, what))
                    columns.setdefault(f"probe/{name}/{what}", column)
    return columns


def is_late(what: str) -> bool:
    """Whether a number is a fraction of late pairs."""
    return what.split("_")[0] == "late"


def _meaning(document: Document, what: str) -> str:
    if is_late(what):
        return (
            "Share of the pairs with both blocks in the last three quarters whose score is above "
            f"{document['thresholds']['late']:g}. A full bar is every pair."
        )
    return f"{what.replace('_', ' ')}, as {document['title']} is defined below."


def definitions(probes: Probes) -> list[Column]:
    """Every probe that was asked, by its title, with its definition, unit and thresholds."""
    found = {}
    for name in probes.names:
        for chosen in probes.answered:
            probed = chosen.cell.probes.get(name) if chosen.cell else None
            if probed and name not in found:
                document = probed.document
                limits = [f"{n} {v:g}" for n, v in document["thresholds"].items()]
                text = f"{document['definition']} ({document['unit']})"
                text += f"; {joined(limits)}" if limits else ""
                found[name] = Column(probed.title, f"{text}.")
    return list(found.values())


def summary_rows(
    probes: Probes, columns: Iterable[str], looks: Mapping[Series, Look], notes: Footnotes
) -> list[Row]:
    """One row a design: its name, shape and number of probed seeds, then `columns`."""
    order, wanted = list(looks), list(columns)
    rows = []
    for chosen in probes.answered:
        look, line = looks[chosen.series], chosen.line
        seeds = max((len(line.of_seeds(name)) for name in wanted), default=0)
        values = [Value(look.label, look.summary), Value(line.shape.label), Value(str(seeds))]
        values += [_summary_value(chosen, name, notes) for name in wanted]
        rows.append(Row(order.index(chosen.series), values))
    return rows


def _summary_value(chosen: Chosen, column: str, notes: Footnotes) -> Value:
    _, name, what = column.split("/", 2)
    assert chosen.cell
    mean = chosen.line.mean(column)
    if isinstance(mean, Spread):
        return Value(mean_text(mean, 3), fill=mean.mean if is_late(what) else None)
    probed = chosen.cell.probes.get(name)
    if probed is None:
        return notes.blank(chosen.cell.why_no_probe(name))
    return notes.blank(probed.reason or NO_NUMBER)


def without_answer(probes: Probes, name: str, looks: Mapping[Series, Look]) -> str:
    """Which of the probed designs have no answer to a probe, and why."""
    reasons: dict[str, list[str]] = {}
    for chosen in probes.answered:
        probed = chosen.cell.probes.get(name) if chosen.cell else None
        why = probed.reason if probed else chosen.cell and chosen.cell.why_no_probe(name)
        if why:
            reasons.setdefault(why, []).append(looks[chosen.series].label)
    return " ".join(f"No answer for {joined(who)}: {why}." for why, who in reasons.items())


def not_probed(probes: Probes, looks: Mapping[Series, Look]) -> list[str]:
    """The designs of which no cell was probed, by reason."""
    reasons: dict[str, list[str]] = {}
    for chosen in probes.chosen:
        if chosen.cell is None:
            reasons.setdefault(chosen.note, []).append(looks[chosen.series].label)
    return [f"{joined(who)}: {why}." for why, who in reasons.items()]
