"""Comparing reports: paired changes of what is comparable, and the names of what is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from depthbench.comparison.pairs import Pair, compare_pair
from depthbench.comparison.published import PAPER, Part, parts_of, published
from depthbench.comparison.reading import Report, read_report
from depthbench.comparison.verdicts import checked_tolerance
from depthbench.errors import InputError
from depthbench.printable import printable

_LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Reports:
    """The first report, and each of the others against it.

    `parts`: where published numbers are among them, how designs stand in every report by itself.
    """

    reports: tuple[Report, ...]
    pairs: tuple[Pair, ...]
    parts: tuple[Part, ...]
    tolerance: float | None
    ignore_version: bool

    @property
    def comparable(self) -> bool:
        """Whether every pair has a run in common."""
        return all(pair.comparable for pair in self.pairs)

    @property
    def regressed(self) -> bool:
        return any(pair.regressions for pair in self.pairs)


def compare_reports(
    sources: Sequence[str], tolerance: float | None = None, ignore_version: bool = False
) -> Reports:
    """Every report against the first. A source is a path, or `paper` for the published numbers.

    `tolerance`: nats up to which a change is no regression. Raises `InputError` for fewer than two
    reports, for one that is given twice, and for what cannot be read.
    """
    checked_tolerance(tolerance)
    if not 2 <= len(sources) <= len(_LABELS):
        raise InputError(
            f"{len(sources)} reports: name 2 to {len(_LABELS)}; each is compared with the first"
        )
    _refuse_same(sources)
    reports = [
        published(label) if source == PAPER else read_report(source, label)
        for source, label in zip(sources, _LABELS, strict=False)
    ]
    first, *others = reports
    pairs = tuple(compare_pair(first, other, tolerance, ignore_version) for other in others)
    alone = reports if PAPER in sources else []
    parts = tuple(part for report in alone for part in parts_of(report))
    return Reports(tuple(reports), pairs, parts, tolerance, ignore_version)


def _refuse_same(sources: Sequence[str]) -> None:
    for (one, first), (other, second) in combinations(zip(_LABELS, sources, strict=False), 2):
        if first == second or (
            PAPER not in (first, second) and Path(first).resolve() == Path(second).resolve()
        ):
            raise InputError(
                f"{one} and {other} are both {printable(second)}: a report does not differ from "
                "itself, name two"
            )
