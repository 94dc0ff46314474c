"""Residual designs: how each sublayer of a deep stack reads and writes the residual state."""

from residuals.contract import Design, RoutingFlops, Sequence, Stack, State
from residuals.errors import DesignError, unknown
from residuals.parameters import (
    NORM_GAIN,
    ROUTING_DYNAMIC,
    ROUTING_STATIC,
    WEIGHT,
    Declared,
    Role,
    declared,
    initialise,
)
from residuals.registry import all_designs, build, get, load_plugin, names, register

BENCHMARK = (
    "pre-ln",
    "sandwich-ln",
    "lns",
    "deepnorm",
    "keel",
    "moda",
    "hc",
    "mhc",
    "full-attnres",
    "block-attnres",
)
"""The ten designs that the benchmark compares."""

__all__ = [
    "BENCHMARK",
    "NORM_GAIN",
    "ROUTING_DYNAMIC",
    "ROUTING_STATIC",
    "WEIGHT",
    "Declared",
    "Design",
    "DesignError",
    "Role",
    "RoutingFlops",
    "Sequence",
    "Stack",
    "State",
    "all_designs",
    "build",
    "declared",
    "get",
    "initialise",
    "load_plugin",
    "names",
    "register",
    "unknown",
]
