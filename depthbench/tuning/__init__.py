"""Learning rates by the same search for every design (protocol §3): curves, choice, search."""

from depthbench.tuning.curves import Curve, curves
from depthbench.tuning.rates import Rates
from depthbench.tuning.search import first_cells, search

__all__ = ["Curve", "Rates", "curves", "first_cells", "search"]
