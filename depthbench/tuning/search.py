"""The search: the same grid for every design, continued where its best point is the outermost."""

from collections.abc import Callable, Sequence
from itertools import product

from depthbench.axes import Tune
from depthbench.config import CellConfig, CorpusRef, DesignRef, Loop
from depthbench.errors import DepthbenchError
from depthbench.expand import cell_config
from depthbench.store import Record
from depthbench.suite import Suite
from depthbench.tuning.curves import Curve, Key, curves
from depthbench.tuning.rates import Rates

Run = Callable[[Sequence[CellConfig]], list[Record]]


def first_cells(suite: Suite, corpus: CorpusRef) -> list[CellConfig]:
    """Every design and loop at every anchor, grid rate and tuning seed."""
    return _cells_at(suite, corpus, _tune(suite).rates)


def search(suite: Suite, corpus: CorpusRef, run: Run) -> Rates:
    """Runs tuning cells until every optimum is interior or no further rate is allowed.

    `run` trains the cells that are not finished and returns the rows of all; it raises if one
    fails. Nothing is remembered between rounds but the rows, so that a search goes on where it
    ended.
    """
    tune = _tune(suite)
    cells = {cell.digest(): cell for cell in first_cells(suite, corpus)}
    while True:
        found = curves(run(list(cells.values())))
        further = {
            cell.digest(): cell
            for curve in found
            if (rate := next_rate(curve, tune)) is not None
            for cell in _cells_at(suite, corpus, (rate,))
            if Key.of(cell) == curve.key
        }
        if not further.keys() - cells.keys():
            return Rates(found, tune.factor)
        cells |= further


def next_rate(curve: Curve, tune: Tune) -> float | None:
    """The rate beyond an edge optimum; None if it is interior or as far out as is allowed."""
    if curve.edge is None:
        return None
    lowest, highest = tune.rates[0], tune.rates[-1]
    down = curve.edge == "low"
    outermost = curve.points[0].rate if down else curve.points[-1].rate
    for step in range(1, tune.extensions + 1):
        rate = lowest / tune.factor**step if down else highest * tune.factor**step
        rate = float(f"{rate:.6g}")
        if (rate < outermost) if down else (rate > outermost):
            return rate
    return None


def _cells_at(suite: Suite, corpus: CorpusRef, rates: Sequence[float]) -> list[CellConfig]:
    tune = _tune(suite)
    budgeted = suite if tune.budget is None else suite.model_copy(update={"budget": tune.budget})
    return [
        cell_config(budgeted, corpus, design, shape, loop, seed, rate=rate, role="tuning")
        for shape in suite.ladder.shapes
        if shape.layers in tune.layers
        for design, loop in _scored(suite)
        for rate in rates
        for seed in tune.seeds
    ]


def _scored(suite: Suite) -> list[tuple[DesignRef, Loop | None]]:
    """Every design with every loop in which some part of the suite scores it."""
    found: list[tuple[DesignRef, Loop | None]] = []
    for part in suite.parts():
        pairs = product(part.designs, part.loops)
        found += [pair for pair in pairs if pair not in found]
    return found


def _tune(suite: Suite) -> Tune:
    if suite.tune is None:
        raise DepthbenchError(f"suite {suite.name} has no tune")
    return suite.tune
