"""Layer probes: whether depth is used, asked of a trained cell in a pass of its own."""

# isort: off
# Each registers itself, in the order of a page.
from depthbench.probes import angular, causal, permutation, pruning, lens, paths  # noqa: F401
from depthbench.probes import transport, segments, representation, statistics  # noqa: F401
from depthbench.probes import alignment  # noqa: F401

# isort: on
from depthbench.probes.registry import Findings, Probe, get, names, probe
from depthbench.probes.run import Probing, probe_cell, read_documents

__all__ = ["Findings", "Probe", "Probing", "get", "names", "probe", "probe_cell", "read_documents"]
