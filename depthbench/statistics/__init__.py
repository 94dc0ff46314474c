"""Differences, depth benefit, ranks and noise of comparable rows, with their intervals."""

from depthbench.statistics.analysis import Analysis as Analysis
from depthbench.statistics.analysis import CellResult as CellResult
from depthbench.statistics.analysis import DesignResult as DesignResult
from depthbench.statistics.analysis import analyse as analyse
from depthbench.statistics.compare import CELL_KEY as CELL_KEY
from depthbench.statistics.compare import CellChange as CellChange
from depthbench.statistics.compare import Comparison as Comparison
from depthbench.statistics.compare import DesignChange as DesignChange
from depthbench.statistics.compare import paired_change as paired_change
from depthbench.statistics.depth import DepthBenefit as DepthBenefit
from depthbench.statistics.detect import NoiseReport as NoiseReport
from depthbench.statistics.detect import Scatter as Scatter
from depthbench.statistics.detect import smallest_detectable as smallest_detectable
from depthbench.statistics.estimates import Estimate as Estimate
from depthbench.statistics.estimates import holm as holm
from depthbench.statistics.grid import Cell as Cell
from depthbench.statistics.grid import DesignKey as DesignKey
from depthbench.statistics.grid import Diverged as Diverged
from depthbench.statistics.grid import Missing as Missing
from depthbench.statistics.grid import Shape as Shape
