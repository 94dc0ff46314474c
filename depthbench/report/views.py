"""What the templates show of domains, probes, costs and the published numbers of a section."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from depthbench.report.cells import Cells
from depthbench.report.domains import (
    DOMAIN_MEANINGS,
    SET_COLUMNS,
    domain_columns,
    domain_rows,
    set_rows,
    title_of,
)
from depthbench.report.drawn import Figure, Legend, legend, small
from depthbench.report.efficiency import COST_COLUMNS, COSTS, cost_rows, hosts
from depthbench.report.panels import Panel
from depthbench.report.parts import Parts
from depthbench.report.places import Place
from depthbench.report.series import Look, Series
from depthbench.report.tables import Column, Row
from depthbench.report.values import Footnotes, joined

Looks = Mapping[Series, Look]


@dataclass(frozen=True)
class Table:
    """A table with the reasons of its blanks."""

    columns: Sequence[Column]
    rows: list[Row]
    caption: str
    name: str
    notes: dict[str, str]
    explained: Sequence[Column]


@dataclass(frozen=True)
class Part:
    """Figures with a key, and tables. `say`: sentences before them."""

    say: list[str]
    figures: list[Figure]
    key: Legend
    tables: list[Table]
    files: str = ""


def table(
    columns: Sequence[Column],
    rows: list[Row],
    caption: str,
    name: str,
    notes: Footnotes,
    explained: Sequence[Column] | None = None,
) -> Table:
    """`explained`: what is spelled out under the table; all columns but the first by default."""
    reasons = {letter: reason for reason, letter in notes.reasons.items()}
    return Table(columns, rows, caption, name, reasons, explained or columns[1:])


def domain_views(parts: Parts, looks: Looks, cells: Cells, files: Sequence[str]) -> list[Part]:
    """One part for each evaluation."""
    views = []
    for number, (block, panels) in enumerate(parts.blocks, 1):
        notes, set_notes = Footnotes(), Footnotes()
        rows = domain_rows(block, parts.lines, cells, looks, notes)
        of = f" ({number} of {len(parts.blocks)})" if len(parts.blocks) > 1 else ""
        say = [f"Evaluation {block.evaluation}{of}: {_scored(parts, len(block.cells))}."]
        if of:
            say.append(
                "Cells were scored on different evaluations: other sets, other limits, or another "
                "context. What is not of one evaluation is not drawn together and does not compare."
            )
        text = (
            "Bars: 95 % bootstrap interval over items. All designs have the same items, so their "
            "differences are surer than the bars."
        )
        views.append(
            Part(
                say,
                [small(panel, looks, text) for panel in panels],
                legend({s for p in panels for s in p.values}, looks),
                [
                    table(
                        domain_columns(block),
                        rows,
                        "Nats per target token and bits per byte of "
                        f"{joined(title_of(name) for name in block.domains)}, one line for each "
                        "design, shape and learning rate.",
                        "domains",
                        notes,
                        DOMAIN_MEANINGS,
                    ),
                    table(
                        SET_COLUMNS,
                        set_rows(block, set_notes),
                        "What was scored. The values of every set stand with each cell.",
                        "sets",
                        set_notes,
                    ),
                ],
                files[number - 1],
            )
        )
    return views


def _scored(parts: Parts, num: int) -> str:
    return f"{num} of {len(parts.members)} finished runs were scored on it"


def cost_view(parts: Parts, looks: Looks) -> Part:
    """What the section's runs cost."""
    notes = Footnotes()
    rows = cost_rows(parts.lines, looks, notes)
    where = hosts(parts.lines)
    say = ["Formulas hold on every machine; what was measured holds for its host."]
    if len(where) > 1:
        say.append(
            f"The runs were on {joined(where)}: their hours do not compare, so they stand in the "
            "table only."
        )
    figures = [small(panel, looks, _said(panel)) for panel in parts.costs]
    caption = "Costs of every design, shape and learning rate."
    return Part(
        say,
        figures,
        legend({series for series, _ in parts.best}, looks),
        [table(COST_COLUMNS, rows, caption, "costs", notes)],
    )


def _said(panel: Panel) -> str:
    """How a formula's panel reads; what was measured is captioned like a loss."""
    if panel.measure not in {cost.name for cost in COSTS if cost.formula}:
        return ""
    by_shape: dict[Place, set[float]] = {}
    for values in panel.values.values():
        for shape, value in values.items():
            by_shape.setdefault(shape, set()).add(value.mean)
    if len(panel.values) < 2 or any(len(found) > 1 for found in by_shape.values()):
        return "By formula."
    return "By formula. The same for every design: one line covers the others."
