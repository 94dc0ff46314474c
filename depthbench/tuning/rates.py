"""The rate of every design at every shape: measured at the anchors, between them interpolated."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from depthbench.config import DesignRef, Loop, Tuned
from depthbench.tuning.curves import Curve

_Owner = tuple[str, int, str, str | None]


class Rates:
    """Chosen from sensitivity curves. Raises `KeyError` for a design that has none."""

    def __init__(self, curves: Sequence[Curve], factor: float) -> None:
        """`factor` between neighbouring rates: where all diverged, the rate is one below all."""
        anchors: dict[_Owner, dict[int, tuple[float, Tuned]]] = defaultdict(dict)
        for curve in curves:
            best = curve.best
            rate = best.rate if best else curve.points[0].rate / factor
            seeds = sorted({seed for point in curve.points for seed in point.seeds})
            tuned = Tuned(
                rates=tuple(point.rate for point in curve.points),
                seeds=tuple(seeds),
                edge=curve.edge is not None,
                interpolated=False,
            )
            owner = (*curve.key[:3], curve.key.loop)
            anchors[owner][curve.key.layers] = (rate, tuned)
        self._anchors = dict(anchors)

    def at(self, design: DesignRef, loop: Loop | None, layers: int) -> tuple[float, Tuned]:
        """Log rate is linear in log depth between two anchors; beyond the last it is the last's.

        An interpolated rate has three digits, and is at an edge if one of its anchors is.
        """
        options = json.dumps(design.options, sort_keys=True)
        text = loop.model_dump_json() if loop else None
        anchors = self._anchors[design.name, design.version, options, text]
        depths = sorted(anchors)
        if layers in anchors or len(depths) == 1:
            return anchors.get(layers, anchors[depths[0]])
        inside = min(max(layers, depths[0]), depths[-1])
        below, above = next(pair for pair in pairwise(depths) if inside <= pair[1])
        share = math.log(inside / below) / math.log(above / below)
        (low, one), (high, other) = anchors[below], anchors[above]
        tuned = Tuned(
            rates=tuple(sorted({*one.rates, *other.rates})),
            seeds=tuple(sorted({*one.seeds, *other.seeds})),
            edge=one.edge or other.edge,
            interpolated=True,
        )
        return float(f"{low * (high / low) ** share:.3g}"), tuned
