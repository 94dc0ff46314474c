"""The published numbers as a report that nothing can be ranked with, and what stands beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from depthbench.comparable import groups
from depthbench.comparison.reading import Report
from depthbench.comparison.runs import refuse_wide
from depthbench.report import paper
from depthbench.report.series import BASELINE
from depthbench.statistics import DesignKey, Estimate, analyse
from depthbench.store import Record

PAPER = "paper"
_UNKNOWN = (
    *("corpus_hash", "tokenizer_hash", "evaluation", "ladder", "match", "budget"),
    *("sequence_length", "batch_size", "precision"),
)
_NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Course:
    """How one design stands in one part of one report, and nowhere else.

    `depth`: loss at the deepest shape minus that at the shallowest, nats. `beyond`: mean over
    shapes minus the baseline's. `place`: in the order of these means, which is no rank: `rank` is
    one, from intervals.
    """

    design: DesignKey
    depth: Estimate
    beyond: Estimate
    place: int | None
    rank: int | None


@dataclass(frozen=True)
class Part:
    """Comparable rows of one report by themselves, at `shapes`."""

    label: str
    title: str
    shapes: tuple[str, ...]
    designs: tuple[Course, ...]


def published(label: str) -> Report:
    """The published losses, one seed each, of runs of which no hash is known."""
    rows = []
    for table in paper.document()["loss"]:
        for row in paper.records(table["values"]):
            unknown = dict.fromkeys(_UNKNOWN, "not published")
            rows.append(row | unknown | {"corpus": "", "recipe": "{}", "suite": table["title"]})
    known = paper.document()["provenance"]
    note = f"Published numbers ({known['source']}): {known['setting']}."
    return Report(label, PAPER, rows, note=note)


def parts_of(report: Report) -> list[Part]:
    """The courses of a report, for every group of its rows that may be ranked together."""
    if report.published:
        titles = list(dict.fromkeys(row["suite"] for row in report.rows))
        members = [(t, [row for row in report.rows if row["suite"] == t]) for t in titles]
    else:
        members = [
            (", ".join(f"{name} {value}" for name, value in group.fields.items()), [*group.before])
            for group in groups(report.rows)
        ]
    return [_part(report.label, title, rows) for title, rows in members]


def _part(label: str, title: str, rows: Sequence[Record]) -> Part:
    refuse_wide(rows)
    found = analyse(rows, BASELINE, num_resamples=_NUM_RESAMPLES)
    base = found.baseline

    def mean(design: DesignKey, beyond: Estimate) -> float | None:
        return 0.0 if design == base else beyond.value

    means = {d.design: mean(d.design, d.difference) for d in found.designs}
    order = sorted(value for value in means.values() if value is not None)
    courses = []
    for design in found.designs:
        value = means[design.design]
        place = None if value is None else 1 + order.index(value)
        depth = design.depth.change
        courses.append(Course(design.design, depth, design.difference, place, design.rank))
    return Part(label, title, tuple(map(str, found.ladder)), tuple(courses))
