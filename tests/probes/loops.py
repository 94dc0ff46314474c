"""Tiny models of prelude, core and coda in float64."""

from typing import Any

import torch

import residuals
from depthbench.config import CoreLoop, DesignRef, Shape
from depthbench.designs import lay_out_parts
from depthbench.model.looped import LoopedDecoder
from tests.residuals.kit import VOCAB, perturb, shape_of


def make_looped(
    name: str,
    options: dict[str, Any] | None = None,
    *,
    shape: Shape | None = None,
    eps: float = 1e-5,
    scale: float = 0.3,
    **loop: Any,
) -> LoopedDecoder:
    """One block, a core of two, one block, unless `shape` and `loop` say otherwise; perturbed."""
    shape = shape or shape_of(4, 8)
    how = CoreLoop(**{"prelude": 1, "coda": 1, "forward": 2} | loop)
    ref = DesignRef(name=name, version=residuals.get(name).version, options=options or {})
    with torch.device("meta"):
        model = LoopedDecoder(shape, VOCAB, lay_out_parts(ref, shape, eps, how), how)
    model.to_empty(device="cpu")
    residuals.initialise(model, 0)
    model = model.double()
    perturb(model, scale)
    return model
