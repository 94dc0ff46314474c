"""What the losses say about depth, and from which difference on they say anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from depthbench.report.lines import (
    IS_REFERENCE,
    NO_REFERENCE,
    Best,
    Blank,
    Line,
    ShapeKey,
    Spread,
    spread,
    status_text,
)
from depthbench.report.series import Series
from depthbench.statistics import Estimate

ALPHA = 0.05  # after Holm over designs


@dataclass(frozen=True)
class Yardstick:
    """Smallest difference of two means (nats) to read, and what the noise was judged by."""

    nats: float
    source: Literal["seeds", "unevenness"]
    num_seeds: int


@dataclass(frozen=True)
class DepthChange:
    """Loss at the deepest shape minus loss at the shallowest, paired by seed.

    `judged`, `judged_beyond`: the same with intervals, where the noise between seeds is known.
    """

    series: Series
    change: Spread | Blank
    beyond_reference: Spread | Blank
    best: ShapeKey | Blank
    judged: Estimate | None = None
    judged_beyond: Estimate | None = None

    @property
    def value(self) -> float | None:
        """The change in nats: as the statistics have it, else from runs paired by seed."""
        if self.judged and self.judged.value is not None:
            return self.judged.value
        return None if isinstance(self.change, Blank) else self.change.mean


def shapes_of(best: Best) -> list[ShapeKey]:
    """Every shape, shallow and wide first."""
    return sorted({shape for _, shape in best}, key=lambda shape: -shape.aspect_ratio)


def yardstick(best: Best) -> Yardstick | None:
    """Two-sided 95 % bound on the difference of two means that noise alone would give.

    Where a line has several seeds the noise is the pooled deviation between seeds, and the means
    are taken to have as few as the least has. Else it is judged by the unevenness of the lines,
    which real bends can only enlarge. None when neither can be had.
    """
    done = [line for line in best.values() if line.done]
    num_seeds = min((len(line.done) for line in done), default=0)
    if judged := by_seeds(done):
        return judged
    uneven = _unevenness(best)
    return Yardstick(uneven, "unevenness", num_seeds) if uneven else None


def by_seeds(done: Sequence[Line]) -> Yardstick | None:
    """The bound from the pooled deviation between seeds. None where no line has two."""
    losses = [line.loss for line in done]
    spreads = [s for s in losses if isinstance(s, Spread) and s.sd is not None]
    dof = sum(s.n - 1 for s in spreads)
    if not dof:
        return None
    num_seeds = min(len(line.done) for line in done)
    variance = sum((s.n - 1) * (s.sd or 0.0) ** 2 for s in spreads) / dof
    bound = special.stdtrit(dof, 0.975) * np.sqrt(2 * variance / num_seeds)
    return Yardstick(float(bound), "seeds", num_seeds)


def _unevenness(best: Best) -> float | None:
    """The bound from departures of single runs from straight lines in log2 of the aspect ratio.

    The bend that all designs share is taken out, and the upper quartile over designs keeps a few
    unstable ones from setting the scale.
    """
    shapes = shapes_of(best)
    table = []
    for series in dict.fromkeys(series for series, _ in best):
        losses = [best[series, shape].loss for shape in shapes if (series, shape) in best]
        means = [loss.mean for loss in losses if isinstance(loss, Spread)]
        if len(means) == len(shapes):
            table.append(means)
    num_designs, dof = len(table), len(shapes) - 2
    if num_designs < 3 or dof < 1:
        return None
    x = np.log2([shape.aspect_ratio for shape in shapes])
    basis, _ = np.linalg.qr(np.stack([np.ones_like(x), x], axis=1))
    losses_DS = np.array(table)
    residuals_DS = losses_DS - losses_DS @ basis @ basis.T
    residuals_DS -= residuals_DS.mean(axis=0)
    squares = (residuals_DS**2).sum(axis=1) * num_designs / (num_designs - 1)
    variance = np.quantile(squares, 0.75) / special.chdtri(dof, 0.25)
    return float(special.stdtrit((num_designs - 1) * dof, 0.975) * np.sqrt(2 * variance))


Verdict = Literal["falls", "no readable change", "rises", "no answer"]


def verdict(change: DepthChange, measure: Yardstick | None) -> Verdict:
    """How loss moves with depth, as far as the interval or the yardstick allows, else by sign."""
    if isinstance(change.change, Blank):
        return "no answer"
    if change.judged and change.judged.p_holm is not None and change.judged.value is not None:
        if change.judged.p_holm > ALPHA:
            return "no readable change"
        return "falls" if change.judged.value < 0 else "rises"
    bound = measure.nats if measure else 0.0
    if abs(change.change.mean) <= bound:
        return "no readable change"
    return "falls" if change.change.mean < 0 else "rises"


def depth_changes(
    best: Best, judged: Mapping[Series, tuple[Estimate, Estimate]] | None = None
) -> list[DepthChange]:
    """One per series: those that gain most from depth first, those without an answer last."""
    shapes = shapes_of(best)
    names = list(dict.fromkeys(series for series, _ in best))
    by_seed = {series: _changes_by_seed(series, best, shapes) for series in names}
    base = next((by_seed[s] for s in names if s.is_baseline), {})
    result = []
    for series in names:
        own = by_seed[series]
        beyond = spread([change - base[seed] for seed, change in own.items() if seed in base])
        change = spread(list(own.values())) or _why_no_change(series, best, shapes)
        missing = change if isinstance(change, Blank) else Blank(NO_REFERENCE)
        result.append(
            DepthChange(
                series,
                change,
                Blank(IS_REFERENCE) if series.is_baseline else beyond or missing,
                _best_shape(series, best, shapes),
                *(judged or {}).get(series, ()),
            )
        )
    return sorted(result, key=lambda c: np.inf if c.value is None else c.value)


def _changes_by_seed(series: Series, best: Best, shapes: Sequence[ShapeKey]) -> dict[int, float]:
    ends = [best[series, s].by_seed for s in (shapes[0], shapes[-1]) if (series, s) in best]
    if len(ends) < 2 or len(shapes) < 2:
        return {}
    shallow, deep = ends
    return {seed: deep[seed] - loss for seed, loss in shallow.items() if seed in deep}


def _why_no_change(series: Series, best: Best, shapes: Sequence[ShapeKey]) -> Blank:
    if len(shapes) < 2:
        return Blank("only one shape was run")
    for shape in (shapes[0], shapes[-1]):
        line = best.get((series, shape))
        if line is None:
            return Blank(f"not run at {shape.label}")
        if not line.done:
            return Blank(f"{shape.label}: {status_text(line.records)}")
    return Blank("no seed is shared by the shallowest and the deepest shape")


def _best_shape(series: Series, best: Best, shapes: Sequence[ShapeKey]) -> ShapeKey | Blank:
    losses = {s: best[series, s].loss for s in shapes if (series, s) in best}
    means = {s: loss.mean for s, loss in losses.items() if isinstance(loss, Spread)}
    if len(means) < 2:
        return Blank("fewer than two shapes have finished")
    return min(means, key=means.__getitem__)
