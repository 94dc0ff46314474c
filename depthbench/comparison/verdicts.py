"""When a change counts as a regression."""

import math
from collections.abc import Sequence

from depthbench.errors import InputError
from depthbench.statistics import CellChange, DesignChange


def checked_tolerance(tolerance: float | None) -> float | None:
    if tolerance is not None and not (math.isfinite(tolerance) and tolerance >= 0):
        raise InputError(f"--tolerance {tolerance}: give nats, 0 or more, as in 0.005")
    return tolerance


def regression(
    change: DesignChange, cells: Sequence[CellChange], tolerance: float | None
) -> str | None:
    """Why a design, whose cells these are, got worse; None if it did not.

    A run that finished before and does not now always counts; one that is gone does not, since a
    report may be of fewer cells. Else the mean over cells counts where it is above zero beyond
    noise and above the tolerance. What has no interval can be judged by size alone, so it counts
    only where a tolerance is given, and then every cell for itself: runs of one seed are repeated
    to the last digit on one machine, and a change in one cell is then no noise.
    """
    if change.num_lost:
        what = "run finishes" if change.num_lost == 1 else "runs finish"
        return f"{change.num_lost} {what} no longer"
    limit, value = tolerance or 0.0, change.change.value
    if change.verdict == "worse" and value is not None and value > limit:
        return f"worse by {value:.4f} nats, beyond noise"
    if tolerance is None:
        return None
    if change.change.p is None and value is not None and value > limit:
        return f"worse by {value:.4f} nats, above the tolerance; no interval"
    risen = [c for c in cells if c.change.p is None and (c.change.value or 0.0) > limit]
    if risen:
        worst = max(risen, key=lambda cell: cell.change.value or 0.0)
        where = f"L{worst.cell['layers']} / d{worst.cell['d_model']}"
        return (
            f"worse by {worst.change.value:.4f} nats at {where}, above the tolerance; no interval"
        )
    return None
