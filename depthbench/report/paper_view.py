"""What the templates show of the published numbers."""

from dataclasses import replace

from depthbench.report import paper
from depthbench.report.cells import Cells
from depthbench.report.domains import title_of
from depthbench.report.drawn import legend, small
from depthbench.report.parts import Parts
from depthbench.report.values import Footnotes
from depthbench.report.views import Looks, Part, Table, table

NO_PAIR = "no finished design can be paired with Pre-LN"


def paper_view(parts: Parts, looks: Looks, cells: Cells) -> list[Part]:
    """The published differences beside ours, then the published numbers of probes beside ours."""
    blocks = [block for block, _ in parts.blocks]
    order, views = list(looks), []
    for pair in paper.pairs(parts.best, blocks, order):
        shown = [*pair.published, *([pair.here] if pair.here else [])]
        drawn = [small(p, looks) for p in shown]
        drawn = [
            replace(figure, caption=f"{paper.without_reference(p)} {figure.caption}".strip())
            if p in pair.published
            else figure
            for figure, p in zip(drawn, shown, strict=True)
        ]
        say = [pair.title, *([] if pair.here else [f"Nothing here to set beside it: {NO_PAIR}."])]
        views.append(Part(say, drawn, [], []))
    notes = Footnotes()
    rows = paper.probe_rows(parts.best, cells, looks, notes)
    text = "Published numbers of probes, and ours where this group has any."
    key = legend(paper.series() | {s for s, _ in parts.best}, looks)
    return [*views, Part([], [], key, [table(paper.PROBE_COLUMNS, rows, text, "paper", notes)])]


def published_tables(looks: Looks) -> list[Table]:
    """Every published loss and domain NLL."""
    tables = []
    document = paper.document()
    named = [(f"Validation loss, {t['title']}", t["values"]) for t in document["loss"]]
    named += [(f"{title_of(n)} NLL, {paper.TOTALS}", v) for n, v in document["domains"].items()]
    for title, values in named:
        notes = Footnotes()
        columns, rows = paper.published_table(values, looks, notes)
        tables.append(table(columns, rows, f"Published: {title}.", "published", notes))
    return tables
