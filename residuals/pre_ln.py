"""Pre-LN, the baseline (Xiong et al., arXiv 2002.04745)."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from residuals.contract import Design, RoutingFlops, Stack, State
from residuals.norms import RMSNorm
from residuals.probing import unit_paths
from residuals.registry import register


@register
class PreLN(Design):
    """`x ← x + F(N(x))`: the plain residual stream of a Llama decoder.

    The state is the stream `x_BTD`; one input norm per sublayer.
    """

    name = "pre-ln"
    title = "Pre-LN"
    version = 1
    family = "baseline"
    paper = "2002.04745"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.norms = stack.norms()

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return self.norms[k](state[0]), state

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD,)

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor] | None:
        # A rule derived from this one may add otherwise.
        return unit_paths(states) if type(self).write is PreLN.write else None

    def llama_gains(self) -> list[Tensor] | None:
        # A rule derived from this one is another function, and a loop another stack.
        if type(self) is not PreLN or self.stack.num_rounds > 1:
            return None
        return [norm.gain for norm in self.norms if isinstance(norm, RMSNorm)]

    def num_extra_params(self) -> int:
        return 0

    def routing_flops(self) -> RoutingFlops:
        return RoutingFlops()
