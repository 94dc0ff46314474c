"""The page: one HTML file with everything in it."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from depthbench import __version__
from depthbench.report import facts, paper, statements
from depthbench.report.cells import Cells
from depthbench.report.drawn import Figure, Legend, figure, legend
from depthbench.report.looped import Looped
from depthbench.report.looped_view import looped_view
from depthbench.report.outputs import LoopedNames, Names
from depthbench.report.paper_view import paper_view, published_tables
from depthbench.report.parts import Parts
from depthbench.report.probe_view import ProbeView, probe_view
from depthbench.report.reading import depth_changes, yardstick
from depthbench.report.series import Look, Series
from depthbench.report.sheets import Sheet, sheets
from depthbench.report.tables import DEPTH_COLUMNS, LINE_COLUMNS, Row, depth_rows, line_rows
from depthbench.report.values import Footnotes, joined
from depthbench.report.views import Part, cost_view, domain_views
from depthbench.store import Record

_HERE = Path(__file__).parent
Against = Literal["paper"]


@dataclass(frozen=True)
class SectionView:
    """All that the template shows of one section."""

    differing: dict[str, str]
    answer: list[str]
    shows: list[str]
    hides: list[str]
    figures: list[Figure]
    legend: Legend
    depth: list[Row]
    lines: list[Row]
    notes: dict[str, str]
    domains: list[Part]
    no_domains: list[str]
    probes: ProbeView
    costs: Part
    paper: list[Part]
    setup: list[facts.Fact]
    sheets: list[Sheet]
    files: Names


def render(
    records: Sequence[Record],
    sections: Sequence[Parts],
    looks: Mapping[Series, Look],
    cells: Cells,
    files: Sequence[Names],
    against: Against | None = None,
    looped: Sequence[tuple[Looped, LoopedNames]] = (),
) -> str:
    """HTML of the report. `files`: stems of the figure files of every section."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _joined("page.js", *["looped.js"][: len(looped)])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    views = [
        _view(parts, looks, cells, names, f"f{i}-", against)
        for i, (parts, names) in enumerate(zip(sections, files, strict=True))
    ]
    style = _joined("page.css", "parts.css", *["looped.css"][: len(looped)])
    loops = [
        looped_view(part, looks, cells, names, f"l{i}-") for i, (part, names) in enumerate(looped)
    ]
    html = environment.get_template("page.html.j2").render(
        version=__version__,
        title=_title(sections, looped),
        suites=joined(sorted({record["suite"] for record in records})),
        style=Markup(style),
        script=Markup(script),
        script_hash=digest,
        looks=list(looks.values()),
        facts=facts.head_facts(records),
        sections=views,
        looped=loops,
        differing=joined(sections[0].section.differing) if sections else "",
        line_columns=LINE_COLUMNS,
        depth_columns=DEPTH_COLUMNS,
        published=published_tables(looks) if against else [],
        provenance=paper.document()["provenance"] if against else {},
        unfinished=facts.unfinished(records),
        copies=facts.copies(records),
    )
    return html.strip() + "\n"


def _joined(*names: str) -> str:
    return "".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def _title(sections: Sequence[Parts], looped: Sequence[object]) -> str:
    if not looped:
        return "Loss against aspect ratio"
    return "Loss against aspect ratio and loops" if sections else "Loss of looped stacks"


def _view(
    parts: Parts,
    looks: Mapping[Series, Look],
    cells: Cells,
    files: Names,
    prefix: str,
    against: Against | None,
) -> SectionView:
    records, lines, best = parts.section.records, parts.lines, parts.best
    measure = yardstick(best)
    changes = depth_changes(best)
    notes = Footnotes()
    return SectionView(
        differing=parts.section.differing,
        answer=statements.answer(changes, best, measure, looks),
        shows=statements.shows(records, lines, best),
        hides=statements.hides(records, lines, best, measure, looks),
        figures=[figure(panel, looks, f"{prefix}{panel.measure}-") for panel in parts.losses],
        legend=legend({series for series, _ in best}, looks, prefix),
        depth=depth_rows(changes, measure, looks, notes),
        lines=line_rows(lines, best, looks, notes, cells),
        notes={letter: reason for reason, letter in notes.reasons.items()},
        domains=domain_views(parts, looks, cells, prefix, files.domains),
        no_domains=sorted({cell.why_no_domains for cell in parts.members if not cell.domains}),
        probes=probe_view(parts, looks, prefix),
        costs=cost_view(parts, looks, prefix),
        paper=paper_view(parts, looks, cells, prefix) if against else [],
        setup=facts.setup_facts(records),
        sheets=sheets(parts.members, parts.probes, looks),
        files=files,
    )
