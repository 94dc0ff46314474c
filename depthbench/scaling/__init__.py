"""Scaling laws of looped stacks: fitting them, and planning with them."""

from depthbench.scaling.answers import Ask, plan
from depthbench.scaling.fitting import Fit, fit
from depthbench.scaling.law import Law, compute
from depthbench.scaling.named import named_laws, open_law
from depthbench.scaling.planner import Choice, Fixed, Planner
from depthbench.scaling.rows import Runs, read_runs
from depthbench.scaling.statements import judge

__all__ = [
    "Ask",
    "Choice",
    "Fit",
    "Fixed",
    "Law",
    "Planner",
    "Runs",
    "compute",
    "fit",
    "judge",
    "named_laws",
    "open_law",
    "plan",
    "read_runs",
]
