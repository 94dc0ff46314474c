"""The page: one HTML file with everything in it."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from depthbench import __version__
from depthbench.report import facts, figures, statements
from depthbench.report.lines import best_lines, lines_of
from depthbench.report.panels import TITLES, Panel, panels
from depthbench.report.reading import depth_changes, yardstick
from depthbench.report.sections import Section
from depthbench.report.series import Look, Series
from depthbench.report.svg import inline
from depthbench.report.tables import DEPTH_COLUMNS, LINE_COLUMNS, Row, depth_rows, line_rows
from depthbench.report.values import Footnotes, joined
from depthbench.store import Record

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Figure:
    """One panel, drawn for a wide and for a narrow screen."""

    wide: Markup
    compact: Markup
    caption: str


@dataclass(frozen=True)
class SectionView:
    """All that the template shows of one section."""

    differing: dict[str, str]
    answer: list[str]
    shows: list[str]
    hides: list[str]
    figures: list[Figure]
    legend: list[tuple[str, list[tuple[int, Look, Markup]]]]
    depth: list[Row]
    lines: list[Row]
    notes: dict[str, str]
    setup: list[facts.Fact]
    files: str


def section_panels(section: Section, looks: Mapping[Series, Look]) -> list[Panel]:
    """The panels of a section's figure."""
    return panels(best_lines(lines_of(section.records)), list(looks))


def render(
    records: Sequence[Record],
    sections: Sequence[Section],
    looks: Mapping[Series, Look],
    files: Sequence[str],
) -> str:
    """HTML of the report. `files`: stem of the figure files of every section."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    views = [
        _view(section, looks, stem, f"f{i}-")
        for i, (section, stem) in enumerate(zip(sections, files, strict=True))
    ]
    html = environment.get_template("page.html.j2").render(
        version=__version__,
        suites=joined(sorted({record["suite"] for record in records})),
        style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=digest,
        looks=list(looks.values()),
        facts=facts.head_facts(records),
        sections=views,
        differing=joined(sections[0].differing) if sections else "",
        line_columns=LINE_COLUMNS,
        depth_columns=DEPTH_COLUMNS,
        unfinished=facts.unfinished(records),
        copies=facts.copies(records),
    )
    return html.strip() + "\n"


def _view(section: Section, looks: Mapping[Series, Look], files: str, prefix: str) -> SectionView:
    lines = lines_of(section.records)
    best = best_lines(lines)
    measure = yardstick(best)
    changes = depth_changes(best)
    notes = Footnotes()
    return SectionView(
        differing=section.differing,
        answer=statements.answer(changes, best, measure, looks),
        shows=statements.shows(section.records, lines, best),
        hides=statements.hides(section.records, lines, best, measure, looks),
        figures=[
            _figure(panel, looks, f"{prefix}{panel.measure}-")
            for panel in section_panels(section, looks)
        ],
        legend=_legend({series for series, _ in best}, looks, prefix),
        depth=depth_rows(changes, measure, looks, notes),
        lines=line_rows(lines, best, looks, notes),
        notes={letter: reason for reason, letter in notes.reasons.items()},
        setup=facts.setup_facts(section.records),
        files=files,
    )


def _colours(looks: Mapping[Series, Look]) -> dict[str, str]:
    scheme = {figures.INK: "var(--ink)", figures.MUTED: "var(--muted)", figures.RULE: "var(--rule)"}
    return scheme | {look.light: f"var(--s{i})" for i, look in enumerate(looks.values())}


def _figure(panel: Panel, looks: Mapping[Series, Look], prefix: str) -> Figure:
    def drawn(size: figures.Size, name: str) -> Markup:
        source = figures.draw([panel], looks, size, "svg").decode()
        title = f"{TITLES[panel.measure]} against aspect ratio; the values are in the tables"
        return Markup(inline(source, f"{prefix}{name}-", title, _colours(looks)))

    return Figure(drawn(figures.WIDE, "w"), drawn(figures.COMPACT, "c"), _caption(panel, looks))


def _caption(panel: Panel, looks: Mapping[Series, Look]) -> str:
    parts = [
        "Bars: sample deviation over seeds."
        if any(v.sd is not None for values in panel.values.values() for v in values.values())
        else "One run a point."
    ]
    if panel.measure == "difference":
        parts.append("Below the thick line a design is better than Pre-LN at that shape.")
    if panel.diverged:
        lost = [
            f"{looks[series].label} at {shape.label}"
            for series, shapes in panel.diverged.items()
            for shape in shapes
        ]
        parts.append(f"× along the top: diverged, {joined(lost)}.")
    if panel.outside:
        beyond = [
            f"{looks[series].label} at {shape.label} with {value:.4f}"
            for series, shape, value in panel.outside
        ]
        parts.append(f"Outside the panel, marked at its edge: {joined(beyond)}.")
    return " ".join(parts)


def _legend(
    shown: set[Series], looks: Mapping[Series, Look], prefix: str
) -> list[tuple[str, list[tuple[int, Look, Markup]]]]:
    families: dict[str, list[tuple[int, Look, Markup]]] = {}
    for i, (series, look) in enumerate(looks.items()):
        if series in shown:
            source = figures.swatch(look).decode()
            drawn = Markup(inline(source, f"{prefix}k{i}-", look.label, _colours(looks)))
            families.setdefault(look.family, []).append((i, look, drawn))
    return list(families.items())
