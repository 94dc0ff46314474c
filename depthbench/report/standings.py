"""The leaderboard of a section: where every design stands, what it is compared by, and why not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from depthbench.report.lines import Best, Line, ShapeKey
from depthbench.report.series import BASELINE, Series
from depthbench.report.values import joined
from depthbench.statistics import Analysis, CellResult, DesignResult, Estimate, analyse
from depthbench.statistics.estimates import NO_NOISE
from depthbench.store import Record

_FATES = ("diverged", "done")  # of two outcomes of one seed the worse counts


@dataclass(frozen=True)
class Standing:
    """One design. `worst`: the last rank that noise leaves open; `behind`: those that are better.

    `depth` is over the section's ladder; its slope is that of `DepthBenefit` turned round: per
    halving of the aspect ratio, so that below zero depth helps, as it is for the change.
    """

    series: Series
    rank: int | None
    worst: int | None
    behind: tuple[Series, ...]
    why_unranked: str | None
    difference: Estimate
    slope: Estimate
    slope_beyond: Estimate
    change: Estimate
    change_beyond: Estimate
    at_edge: tuple[ShapeKey, ...]
    lines: Mapping[ShapeKey, Line]

    @property
    def records(self) -> list[Record]:
        """All runs that it is judged by."""
        return [record for line in self.lines.values() for record in line.records]


@dataclass(frozen=True)
class Board:
    """The standings in order. `analysis` is of all rows; `ranked` of designs with interior rates.

    `ladder`: the shapes that all that is said of a design is the mean over. `cells`: what is known
    of single shapes, each with its rank among the designs that are ranked.
    """

    standings: list[Standing]
    analysis: Analysis
    ranked: Analysis
    ladder: tuple[ShapeKey, ...]
    cells: Mapping[tuple[Series, ShapeKey], CellResult]

    @property
    def has_intervals(self) -> bool:
        return self.analysis.noise.run is not None


AT_EDGE_LINE = "the design's best learning rate was the outermost that was tried at some shape"


def board_of(best: Best, lines: Sequence[Line]) -> Board:
    """The leaderboard of the lines that stand for their designs."""
    kept = [record for line in lines for record in counted(line)]
    edges = _edges(best)
    analysis = analyse(kept, BASELINE)
    interior = [r for r in kept if not any(_owns(series, r) for series in edges)]
    ranked = analyse(interior, BASELINE) if edges else analysis
    places = {result.design: result for result in ranked.designs}
    standings = [
        _standing(result, places.get(result.design), best, edges) for result in analysis.designs
    ]
    if analysis.noise.run is None:
        standings = [_without_rank(standing) for standing in standings]
    ladder = tuple(ShapeKey(shape.layers, shape.d_model) for shape in analysis.ladder)
    cells = _cells(analysis, ranked)
    return Board(sorted(standings, key=_order), analysis, ranked, ladder, cells)


def _cells(analysis: Analysis, ranked: Analysis) -> dict[tuple[Series, ShapeKey], CellResult]:
    places = {(cell.design, cell.shape): cell for cell in ranked.cells}
    found = {}
    for cell in analysis.cells:
        place = places.get((cell.design, cell.shape))
        if place is None:
            cell = _unranked(cell, AT_EDGE_LINE)
        elif analysis.noise.run is None:
            cell = _unranked(cell, place.rank_reason or NO_NOISE)
        else:
            cell = replace(
                cell, rank=place.rank, rank_worst=place.rank_worst, rank_reason=place.rank_reason
            )
        owner, shape = cell.design, cell.shape
        series = Series(owner.design, owner.version, owner.options)
        found[series, ShapeKey(shape.layers, shape.d_model)] = cell
    return found


def _unranked(cell: CellResult, why: str) -> CellResult:
    return replace(cell, rank=None, rank_worst=None, rank_reason=why)


def _without_rank(standing: Standing) -> Standing:
    """Where the noise is not known, not even a run that diverged gives a place among the others."""
    why = standing.why_unranked or NO_NOISE
    return replace(standing, rank=None, worst=None, behind=(), why_unranked=why)


def counted(line: Line) -> list[Record]:
    """One run for every seed of a line: of several the one that ended, and of these the worst."""

    def fate(record: Record) -> tuple[int, str]:
        status = record["status"]
        known = _FATES.index(status) if status in _FATES else len(_FATES)
        return known, str(record["path"])

    found: dict[int, Record] = {}
    for record in sorted(line.records, key=fate):
        found.setdefault(record["seed"], record)
    return [found[seed] for seed in sorted(found)]


def per_halving(slope: Estimate) -> Estimate:
    """A slope per doubling of the aspect ratio as one per halving."""
    low, high = slope.low, slope.high
    return replace(
        slope,
        value=None if slope.value is None else 0.0 - slope.value,
        low=None if high is None else 0.0 - high,
        high=None if low is None else 0.0 - low,
    )


def _standing(
    result: DesignResult,
    place: DesignResult | None,
    best: Best,
    edges: Mapping[Series, tuple[ShapeKey, ...]],
) -> Standing:
    key = result.design
    series = Series(key.design, key.version, key.options)
    lines = {shape: line for (owner, shape), line in best.items() if owner == series}
    lines = dict(sorted(lines.items(), key=lambda item: -item[0].aspect_ratio))
    at_edge = edges.get(series, ())
    why = _why_edge(at_edge, lines) if place is None else place.rank_reason
    depth = result.depth
    return Standing(
        series=series,
        rank=place.rank if place else None,
        worst=place.rank_worst if place else None,
        behind=tuple(Series(d.design, d.version, d.options) for d in place.behind) if place else (),
        why_unranked=why,
        difference=result.difference,
        slope=per_halving(depth.slope),
        slope_beyond=per_halving(depth.slope_beyond),
        change=depth.change,
        change_beyond=depth.change_beyond,
        at_edge=at_edge,
        lines=lines,
    )


def _order(standing: Standing) -> tuple[bool, int, float]:
    """By rank, those without one last, then by the difference to the baseline."""
    value = 0.0 if standing.series.is_baseline else standing.difference.value
    return standing.rank is None, standing.rank or 0, float("inf") if value is None else value


def _edges(best: Best) -> dict[Series, tuple[ShapeKey, ...]]:
    found: dict[Series, tuple[ShapeKey, ...]] = {}
    for (series, shape), line in sorted(best.items(), key=lambda item: -item[0][1].aspect_ratio):
        if any(record.get("rate_at_edge") for record in line.records):
            found[series] = (*found.get(series, ()), shape)
    return found


def _why_edge(shapes: Sequence[ShapeKey], lines: Mapping[ShapeKey, Line]) -> str:
    where = joined(shape.label for shape in shapes)
    tried = [tuned_of(record)["rates"] for s in shapes for record in lines[s].records]
    rates = sorted({rate for found in tried for rate in found})
    span = f" ({rates[0]:.3g} to {rates[-1]:.3g})" if rates else ""
    return (
        f"the best learning rate at {where} was the outermost that was tried{span}: a better one "
        "may lie beyond"
    )


def tuned_of(record: Record) -> dict[str, Any]:
    """How the rate of a row was found; no rates if it was given."""
    text = record.get("tuned")
    found: dict[str, Any] = json.loads(text) if text else {}
    return {"rates": [], "interpolated": False} | found


def _owns(series: Series, record: Record) -> bool:
    key = (record["design"], record["design_version"], record["options"])
    return key == (series.design, series.version, series.options)
