"""Every design's change with depth as a table."""

from collections.abc import Mapping, Sequence

from depthbench.report.lines import Blank, Spread
from depthbench.report.reading import DepthChange, Yardstick, verdict
from depthbench.report.series import Look, Series
from depthbench.report.tables import (
    DESIGN,
    Column,
    Row,
    bar_scale,
    estimate_value,
    spread_value,
)
from depthbench.report.values import Footnotes, Value
from depthbench.statistics import Estimate

DEPTH_COLUMNS = (
    DESIGN,
    Column("Change", "Loss at the deepest shape minus loss at the shallowest."),
    Column("− Pre-LN's", "That change minus Pre-LN's: below zero the design makes more of depth."),
    Column("Lowest at", "The shape of the design's lowest mean loss.", False),
    Column("Reading", "Whether the change is larger than the smallest readable one.", False),
)


def _judged(
    judged: Estimate | None, found: Spread | Blank, notes: Footnotes, scale: float
) -> Value:
    """With its interval where there is one, else with the deviation over seeds."""
    if judged and judged.low is not None:
        return estimate_value(judged, notes)
    return spread_value(found, notes, 4, scale)


def depth_rows(
    changes: Sequence[DepthChange],
    measure: Yardstick | None,
    looks: Mapping[Series, Look],
    notes: Footnotes,
) -> list[Row]:
    """Values in the order of `DEPTH_COLUMNS`."""
    scale = bar_scale(change.change for change in changes)
    order = list(looks)
    return [
        Row(
            order.index(change.series),
            [
                Value(looks[change.series].label, looks[change.series].summary),
                _judged(change.judged, change.change, notes, scale),
                _judged(change.judged_beyond, change.beyond_reference, notes, 0.0),
                notes.blank(change.best)
                if isinstance(change.best, Blank)
                else Value(change.best.label),
                Value(verdict(change, measure)),
            ],
        )
        for change in changes
    ]
