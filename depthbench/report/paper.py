"""The published numbers, which were had in another setting, laid beside the rows of a report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import residuals
from depthbench.report.cells import Cells, median_cell, why_unprobed
from depthbench.report.domains import Block, title_of
from depthbench.report.lines import Best, Line, ShapeKey, Spread, best_lines, lines_of
from depthbench.report.panels import Panel, difference_panel
from depthbench.report.series import Look, Series, series_of
from depthbench.report.tables import Column, Row
from depthbench.report.values import Footnotes, Value, joined, number
from depthbench.store import COLUMNS, Record

Values = Mapping[str, Mapping[str, float]]
TOTALS = "Equal totals, 405M"
NOT_PUBLISHED = "not published"
_DESIGN = Column("Design", "The residual rule, as it is named here.", False)
PROBE_COLUMNS = (
    _DESIGN,
    Column("Quantity", "What was measured.", False),
    Column("Published", "The number as it was published.", False),
    Column("Its setting", "What is known of how it was had.", False),
    Column("Here", "Mean over seeds at every probed shape, by the definition of this page.", False),
)


@dataclass(frozen=True)
class Pair:
    """Panels to stand side by side, each on axes of its own: what was published, and ours."""

    title: str
    published: list[Panel]
    here: Panel | None


@cache
def document() -> dict[str, Any]:
    """The published numbers with their provenance."""
    text = Path(__file__).with_name("paper.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def records(values: Values, column: str = "loss") -> list[Record]:
    """Published numbers as rows, so that what is drawn of ours can be drawn of them."""
    rows = []
    for design, by_shape in values.items():
        for shape, value in by_shape.items():
            layers, width = map(int, shape.split("x"))
            row: Record = dict.fromkeys(COLUMNS)
            row |= {"design": design, "design_version": _version(design), "options": "{}"}
            row |= {"layers": layers, "d_model": width, "seed": 42, "learning_rate": 0.0}
            row |= {"status": "done", "path": f"published/{design}-{shape}", "loss": value}
            rows.append(row | {column: value})
    return rows


def _version(design: str) -> int:
    try:
        return residuals.get(design).version
    except residuals.DesignError:
        return 1


def all_records() -> list[Record]:
    """Rows of every published loss: who has to have a look."""
    return [row for table in document()["loss"] for row in records(table["values"])]


def series() -> set[Series]:
    """Every design with a published loss."""
    return {series_of(row) for row in all_records()}


def pairs(best: Best, blocks: Sequence[Block], order: Sequence[Series]) -> list[Pair]:
    """Differences to Pre-LN: of losses, then of every domain."""
    here = _ours(best, order, "loss")
    losses = [_published(t["title"], t["values"], order) for t in document()["loss"]]
    result = [Pair("Validation loss minus Pre-LN's at the same shape", losses, here)]
    for name, values in document()["domains"].items():
        holder = next((block for block in blocks if name in block.domains), None)
        panel = _ours(holder.best, order, f"domain/{name}") if holder else None
        title = f"{title_of(name)} NLL minus Pre-LN's at the same shape"
        result.append(Pair(title, [_published(TOTALS, values, order)], panel))
    return result


def _ours(best: Best, order: Sequence[Series], column: str) -> Panel | None:
    panel = difference_panel("Here", best, order, column)
    return panel if len(panel.values) > 1 else None


def _published(title: str, values: Values, order: Sequence[Series]) -> Panel:
    best = best_lines(lines_of(records(values)))
    return difference_panel(f"Published: {title}", best, order)


def without_reference(panel: Panel) -> str:
    """Where designs have numbers and no difference, because Pre-LN has none there."""
    known = {shape for s, by in panel.values.items() if s.is_baseline for shape in by}
    missing = [shape.label for shape in panel.places if shape not in known]
    return f"No difference at {joined(missing)}: no Pre-LN was published there." if missing else ""


def published_table(
    values: Values, looks: Mapping[Series, Look], notes: Footnotes, digits: int = 3
) -> tuple[list[Column], list[Row]]:
    """Design against shape, as published."""
    lines = lines_of(records(values))
    shapes = list(dict.fromkeys(line.shape for line in lines))
    columns = [_DESIGN, *(Column(s.label, f"Aspect ratio {s.aspect_ratio:.3g}.") for s in shapes)]
    best, order = best_lines(lines), list(looks)
    rows = []
    for series in sorted({series for series, _ in best}, key=order.index):
        found = [best.get((series, shape)) for shape in shapes]
        numbers = [_number(line, notes, digits) for line in found]
        rows.append(Row(order.index(series), [Value(looks[series].label), *numbers]))
    return columns, rows


def _number(line: Line | None, notes: Footnotes, digits: int) -> Value:
    loss = line.loss if line else NOT_PUBLISHED
    return Value(f"{loss.mean:.{digits}f}") if isinstance(loss, Spread) else notes.blank(loss)


def probe_rows(
    best: Best, cells: Cells, looks: Mapping[Series, Look], notes: Footnotes
) -> list[Row]:
    """Values in the order of `PROBE_COLUMNS`."""
    order = list(looks)
    rows = []
    for entry in document()["probes"]:
        [row, *_] = records({entry["design"]: {"1x1": 0.0}})
        series = series_of(row)
        own = {shape: line for (owner, shape), line in best.items() if owner == series}
        found = [text for shape, line in own.items() if (text := _here(entry, shape, line, cells))]
        why = [why_unprobed(line, cells) for line in own.values()] or ["not run here"]
        here = Value("; ".join(found)) if found else notes.blank(why[-1])
        values = [Value(looks[series].label), Value(entry["quantity"]), Value(entry["published"])]
        values += [Value(entry["setting"]), here]
        rows.append(Row(order.index(series), values))
    return rows


def _here(entry: Mapping[str, str], shape: ShapeKey, line: Line, cells: Cells) -> str:
    """`shape: number` where this line has it, and nothing where not."""
    if column := entry.get("column"):
        mean = line.mean(column)
        return f"{shape.label}: {number(mean.mean)}" if isinstance(mean, Spread) else ""
    name, _, kind = entry["range"].partition("/")
    cell = median_cell(line, cells)
    probed = cell.probes.get(name) if cell else None
    values = probed.values.get(kind) if probed else None
    return (
        "" if values is None else f"{shape.label}: {number(values.min())} to {number(values.max())}"
    )
