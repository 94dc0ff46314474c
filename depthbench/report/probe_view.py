"""What the templates show of the layer probes."""

from dataclasses import dataclass

from depthbench.report.depth import depth_charts
from depthbench.report.drawn import chart, legend
from depthbench.report.parts import Parts
from depthbench.report.plates import PlateHead, PlateRow, plate_heads, plate_rows
from depthbench.report.probes import Probes
from depthbench.report.summary import (
    CELL_HEAD,
    SUMMARY_HEAD,
    definitions,
    not_probed,
    summaries,
    summary_rows,
    without_answer,
)
from depthbench.report.tables import Column
from depthbench.report.values import Footnotes
from depthbench.report.views import Looks, Part, table


@dataclass(frozen=True)
class ProbeView:
    """Maps, charts and numbers of the cells that stand for their designs."""

    heads: list[PlateHead]
    rows: list[PlateRow]
    notes: dict[str, str]
    charts: Part
    definitions: list[Column]
    absent: list[str]
    lead: str


def probe_view(parts: Parts, looks: Looks) -> ProbeView:
    """The layer probes of a section."""
    return probes_of_part(parts.probes, looks)


def probes_of_part(probes: Probes, looks: Looks, lead: str = "") -> ProbeView:
    """The layer probes of any part. `lead`: which cells are shown, unless the deepest shapes."""
    notes = Footnotes()
    rows = plate_rows(probes, looks, notes)
    drawn = [
        chart(found, looks, without_answer(probes, found.probe, looks))
        for found in depth_charts(probes)
    ]
    head = CELL_HEAD if lead else SUMMARY_HEAD
    where = "in the cells above" if lead else "at the deepest probed shape of each design"
    captions = {
        "late": f"Late pairs that matter, {where}: mean over seeds.",
        "probes": "What else the probes sum up there.",
    }
    tables = []
    for name, caption in captions.items():
        columns, reasons = summaries(probes, name == "late"), Footnotes()
        if columns:
            found = summary_rows(probes, columns, looks, reasons)
            titles = [*head, *columns.values()]
            tables.append(table(titles, found, caption, name, reasons))
    key = legend([chosen.series for chosen in probes.answered], looks)
    return ProbeView(
        plate_heads(probes),
        rows,
        {v: k for k, v in notes.reasons.items()},
        Part([], drawn, key, tables),
        definitions(probes),
        not_probed(probes, looks),
        lead,
    )
