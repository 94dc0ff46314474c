"""Everything that is said about one matrix of comparable rows, as plain dataclasses."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from depthbench.statistics.depth import NUM_RESAMPLES, DepthBenefit, depth_benefits
from depthbench.statistics.detect import NoiseReport, noise_report, null_check
from depthbench.statistics.estimates import Estimate, with_holm
from depthbench.statistics.grid import Cell, DesignKey, Missing, Shape
from depthbench.statistics.noise import Noise, noise_of
from depthbench.statistics.paired import IS_BASELINE, NO_BASELINE, difference
from depthbench.statistics.ranks import ALPHA_LADDER, ALPHA_SHAPES, Rank, ranks
from depthbench.statistics.reading import Rows, grid_of


@dataclass(frozen=True)
class CellResult:
    """One design at one shape.

    `loss` and `sd`: mean and sample deviation over finished seeds, in nats; `runs` tells of the
    others. `difference`: loss minus the baseline's, with Holm's family over designs of this shape.
    Where runs diverged it is of those that did not. `behind`: the designs that are better.
    """

    design: DesignKey
    shape: Shape
    loss: float | None
    sd: float | None
    num_seeds: int
    runs: Cell
    difference: Estimate
    rank: int | None
    rank_worst: int | None
    behind: tuple[DesignKey, ...]
    rank_reason: str | None


@dataclass(frozen=True)
class DesignResult:
    """One design over the ladder. `difference`: mean over shapes; Holm's family is the designs."""

    design: DesignKey
    difference: Estimate
    rank: int | None
    rank_worst: int | None
    behind: tuple[DesignKey, ...]
    rank_reason: str | None
    depth: DepthBenefit


@dataclass(frozen=True)
class Analysis:
    """Statistics of one matrix. `ladder`: the shapes that most designs came to.

    `cells` by shape, shallow first, and `designs` are sorted by rank, then by mean.
    """

    baseline: DesignKey | None
    shapes: tuple[Shape, ...]
    ladder: tuple[Shape, ...]
    cells: tuple[CellResult, ...]
    designs: tuple[DesignResult, ...]
    noise: NoiseReport
    null_check: Estimate
    unplaced: tuple[Missing, ...]
    seed: int
    num_resamples: int

    def document(self) -> dict[str, Any]:
        """The same as JSON knows it: numbers, text, lists and null."""
        return asdict(self)


def analyse(
    rows: Rows, baseline: str, seed: int = 0, num_resamples: int = NUM_RESAMPLES
) -> Analysis:
    """The statistics of rows that are comparable with each other.

    `rows`: as `depthbench.store.rows` gives them, or records alike. `baseline`: the design to which
    all are compared; its newest version without options. `seed` is the bootstrap's. Raises
    `InputError` when a seed is repeated.
    """
    grid = grid_of(rows)
    base = grid.find(baseline)
    noise = noise_of(grid, base)
    ladder = grid.ladder()
    at_shapes = ranks(noise, [[shape] for shape in range(len(grid.shapes))], ALPHA_SHAPES)
    [overall] = ranks(noise, [ladder], ALPHA_LADDER)
    cells = [
        cell for shape in range(len(grid.shapes)) for cell in _cells(noise, shape, at_shapes[shape])
    ]
    depth = depth_benefits(noise, seed, num_resamples)
    return Analysis(
        baseline=None if base is None else grid.designs[base],
        shapes=grid.shapes,
        ladder=tuple(grid.shapes[shape] for shape in ladder),
        cells=tuple(cells),
        designs=tuple(_designs(noise, ladder, overall, depth)),
        noise=noise_report(noise),
        null_check=null_check(noise),
        unplaced=grid.unplaced,
        seed=seed,
        num_resamples=num_resamples,
    )


def _cells(noise: Noise, shape: int, found: list[Rank]) -> list[CellResult]:
    grid = noise.grid
    results = []
    for design, beyond in enumerate(_beyond_baseline(noise, [shape])):
        losses = grid.loss_DSR[design, shape]
        losses = losses[np.isfinite(losses)]
        rank = found[design]
        results.append(
            CellResult(
                design=grid.designs[design],
                shape=grid.shapes[shape],
                loss=float(losses.mean()) if losses.size else None,
                sd=float(losses.std(ddof=1)) if losses.size > 1 else None,
                num_seeds=losses.size,
                runs=grid.cell(design, shape),
                difference=beyond,
                rank=rank.rank,
                rank_worst=rank.worst,
                behind=tuple(grid.designs[d] for d in rank.behind),
                rank_reason=rank.reason,
            )
        )
    return sorted(results, key=lambda cell: _order(cell.rank, cell.loss))


def _designs(
    noise: Noise, ladder: list[int], found: list[Rank], depth: list[DepthBenefit]
) -> list[DesignResult]:
    keys = noise.grid.designs
    beyond = _beyond_baseline(noise, ladder)
    results = [
        DesignResult(
            design=key,
            difference=estimate,
            rank=rank.rank,
            rank_worst=rank.worst,
            behind=tuple(keys[d] for d in rank.behind),
            rank_reason=rank.reason,
            depth=benefit,
        )
        for key, estimate, rank, benefit in zip(keys, beyond, found, depth, strict=True)
    ]
    base = None if noise.baseline is None else keys[noise.baseline]

    def order(result: DesignResult) -> tuple[float, float]:
        value = 0.0 if result.design == base else result.difference.value
        return _order(result.rank, value)

    return sorted(results, key=order)


def _order(rank: int | None, value: float | None) -> tuple[float, float]:
    return np.inf if rank is None else rank, np.inf if value is None else value


def _beyond_baseline(noise: Noise, shapes: list[int]) -> list[Estimate]:
    base = noise.baseline
    found = []
    for design in range(len(noise.grid.designs)):
        if base is None:
            found.append(Estimate(reason=NO_BASELINE))
        elif design == base:
            found.append(Estimate(reason=IS_BASELINE))
        else:
            found.append(difference(noise, design, base, shapes))
    return with_holm(found)
