"""The page: one HTML file with everything in it."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from markupsafe import Markup

from depthbench import __version__
from depthbench.pages import environment
from depthbench.report import facts, paper, statements
from depthbench.report.board_statements import board_statements
from depthbench.report.board_table import board_columns, board_rows
from depthbench.report.cells import Cells
from depthbench.report.depth_table import DEPTH_COLUMNS, depth_rows
from depthbench.report.drawn import Figure, Legend, figure, legend
from depthbench.report.looped_view import looped_view
from depthbench.report.outputs import Contents, Names
from depthbench.report.paper_view import paper_view, published_tables
from depthbench.report.parts import Parts
from depthbench.report.probe_view import ProbeView, probe_view
from depthbench.report.rates import rates_view
from depthbench.report.reading import depth_changes, yardstick
from depthbench.report.series import Look, Series
from depthbench.report.sheets import Sheet, sheets
from depthbench.report.tables import LINE_COLUMNS, Row, line_rows
from depthbench.report.text import printable
from depthbench.report.values import Footnotes, joined
from depthbench.report.views import Part, Table, cost_view, domain_views, table
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
    board: Table
    board_says: list[str]
    setup: list[facts.Fact]
    sheets: list[Sheet]
    files: Names


def render(
    records: Sequence[Record],
    contents: Contents,
    looks: Mapping[Series, Look],
    cells: Cells,
    against: Against | None = None,
) -> str:
    """HTML of the report."""
    templates = environment(_HERE, lambda value: printable(value) if type(value) is str else value)
    script = _joined("page.js", "tables.js", "charts.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    looped = contents.looped
    style = _joined("page.css", "parts.css", "board.css", *["looped.css"][: len(looped)])
    sections = [parts.section for parts, _ in contents.sections]
    html = templates.get_template("page.html.j2").render(
        version=__version__,
        title=_title(contents),
        suites=joined(sorted({record["suite"] for record in records})),
        style=Markup(style),
        script=Markup(script),
        script_hash=digest,
        looks=list(looks.values()),
        facts=facts.head_facts(records),
        sections=[_view(parts, looks, cells, names, against) for parts, names in contents.sections],
        looped=[looped_view(part, looks, cells, names) for part, names in looped],
        rates=[(rates.differing, rates_view(rates, looks, stem)) for rates, stem in contents.rates],
        differing=joined(sections[0].differing) if sections else "",
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


def _title(contents: Contents) -> str:
    if contents.sections:
        looped = " and loops" if contents.looped else ""
        return f"Loss against aspect ratio{looped}"
    return "Loss of looped stacks" if contents.looped else "Learning rates"


def _view(
    parts: Parts,
    looks: Mapping[Series, Look],
    cells: Cells,
    files: Names,
    against: Against | None,
) -> SectionView:
    records, lines, best = parts.section.records, parts.lines, parts.best
    board = parts.entries.board
    judged = board.has_intervals
    measure = None if judged else yardstick(best)
    changes = depth_changes(best, {s.series: (s.change, s.change_beyond) for s in board.standings})
    notes, board_notes = Footnotes(), Footnotes()
    return SectionView(
        differing=parts.section.differing,
        answer=statements.answer(changes, best, measure, looks),
        shows=statements.shows(records, lines, best),
        hides=statements.hides(records, lines, best, measure, looks, judged),
        figures=[figure(panel, looks) for panel in parts.losses],
        legend=legend({series for series, _ in best}, looks),
        depth=depth_rows(changes, measure, looks, notes),
        lines=line_rows(lines, best, looks, notes, cells, board.cells),
        notes={letter: reason for reason, letter in notes.reasons.items()},
        domains=domain_views(parts, looks, cells, files.domains),
        no_domains=sorted({cell.why_no_domains for cell in parts.members if not cell.domains}),
        probes=probe_view(parts, looks),
        costs=cost_view(parts, looks),
        paper=paper_view(parts, looks, cells) if against else [],
        board=table(
            board_columns(parts.entries),
            board_rows(parts.entries, looks, board_notes),
            "Every design, best first: the mean over the shapes of the ladder.",
            "board",
            board_notes,
        ),
        board_says=board_statements(board, looks),
        setup=facts.setup_facts(records),
        sheets=sheets(parts.members, parts.probes, looks),
        files=files,
    )
