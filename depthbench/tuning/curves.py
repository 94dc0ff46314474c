"""Sensitivity curves: the loss of a design at one shape over the peak learning rate."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

from depthbench.config import CellConfig

BASIN = 0.005  # nats above the best loss


class Key(NamedTuple):
    """Whose curve it is: `options` and `loop` as rows write them."""

    design: str
    version: int
    options: str
    loop: str | None
    layers: int
    d_model: int

    @classmethod
    def of(cls, cell: CellConfig) -> "Key":
        """The same of a cell as of its row."""
        design, shape = cell.design, cell.shape
        options = json.dumps(design.options, sort_keys=True)
        loop = cell.loop.model_dump_json() if cell.loop else None
        return cls(design.name, design.version, options, loop, shape.layers, shape.d_model)


@dataclass(frozen=True)
class Point:
    """Mean loss over `seeds` in nats; None if any of them diverged, which is worse than any."""

    rate: float
    loss: float | None
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Basin:
    """Rates whose loss, interpolated over log rate, is within `BASIN` of the best.

    `open_below`, `open_above`: it ends only because no rate beyond was tried.
    """

    low: float
    high: float
    open_below: bool
    open_above: bool

    @property
    def octaves(self) -> float:
        """Its width, log₂."""
        return math.log2(self.high / self.low)


@dataclass(frozen=True)
class Curve:
    """Points by ascending rate."""

    key: Key
    points: tuple[Point, ...]

    @property
    def best(self) -> Point | None:
        """The point of the lowest loss, of two the lower rate; None if all diverged."""
        finished = [point for point in self.points if point.loss is not None]
        return min(finished, key=lambda point: (point.loss, point.rate), default=None)

    @property
    def edge(self) -> str | None:
        """`low` or `high` if the best point has no neighbour on that side, None if it is interior.

        Where everything diverged the best rate lies lower. Of a single point both sides are open.
        """
        best = self.best
        if best is None or best == self.points[0]:
            return "low"
        return "high" if best == self.points[-1] else None

    @property
    def basin(self) -> Basin | None:
        """None if all diverged."""
        best = self.best
        if best is None or best.loss is None:
            return None
        limit = best.loss + BASIN
        place = self.points.index(best)
        below, above = self.points[place::-1], self.points[place:]
        low, high = _reach(below, limit), _reach(above, limit)
        return Basin(low or below[-1].rate, high or above[-1].rate, low is None, high is None)


def _reach(outward: tuple[Point, ...], limit: float) -> float | None:
    """The rate at which the loss first exceeds `limit` on the way out; None if it never does."""
    for near, far in pairwise(outward):
        if far.loss is None:
            return near.rate
        if far.loss > limit and near.loss is not None:
            share = (limit - near.loss) / (far.loss - near.loss)
            return float(near.rate * (far.rate / near.rate) ** share)
    return None


def curves(records: Iterable[Mapping[str, Any]]) -> list[Curve]:
    """One curve for every design, loop and shape of finished tuning rows.

    A row has design, design_version, options, loop, layers, d_model, learning_rate, seed, status
    and loss; rows that are neither done nor diverged are left out.
    """
    found: dict[Key, dict[float, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record["status"] in ("done", "diverged"):
            key = Key(
                record["design"],
                record["design_version"],
                record["options"],
                record["loop"],
                record["layers"],
                record["d_model"],
            )
            found[key][record["learning_rate"]].append(record)
    return [
        Curve(key, tuple(_point(rate, rows[rate]) for rate in sorted(rows)))
        for key, rows in found.items()
    ]


def _point(rate: float, rows: list[Mapping[str, Any]]) -> Point:
    diverged = any(row["status"] == "diverged" for row in rows)
    loss = None if diverged else fmean(row["loss"] for row in rows)
    return Point(rate, loss, tuple(sorted(row["seed"] for row in rows)))
