"""FLOPs that are no number."""

from residuals import RoutingFlops, register
from residuals.pre_ln import PreLN


@register
class Planted(PreLN):
    """FLOPs that are no number."""

    name = "planted-nan-flops"
    title = "Planted"
    version = 1
    family = "norm"
    paper = "none"

    def routing_flops(self) -> RoutingFlops:
        return RoutingFlops(mixing=float("nan"))  # type: ignore[arg-type]
