"""Sandwich-LN (CogView, arXiv 2105.13290, section 2.3); Peri-LN (arXiv 2502.02732) as an option."""

from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from residuals.contract import Design, RoutingFlops, Stack, State
from residuals.probing import unit_paths
from residuals.registry import register


@register
class SandwichLN(Design):
    """`x ← x + N_out(F(N_in(x)))`: a second norm on the branch output, before it joins the stream.

    `embedding_norm` also norms the embedding, which makes it Peri-LN. The forward pass does not see
    the scale of the output projection; never start that projection at zero (0/√eps).
    """

    name = "sandwich-ln"
    title = "Sandwich-LN"
    version = 1
    family = "norm"
    paper = "2105.13290"

    def __init__(self, stack: Stack, *, embedding_norm: bool = False) -> None:
        super().__init__(stack)
        self.norms = stack.norms()
        self.output_norms = stack.norms()
        self.embedding_norm = stack.norms(1)[0] if embedding_norm else nn.Identity()

    def start(self, x_BTD: Tensor) -> State:
        return (self.embedding_norm(x_BTD),)

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return self.norms[k](state[0]), state

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + self.output_norms[k](y_BTD),)

    def path_weights(self, states: Sequence[State]) -> Iterator[Tensor]:
        # Of the normed outputs, which are what joins the stream.
        return unit_paths(states)

    def num_extra_params(self) -> int:
        num_norms = self.stack.num_sublayers + (not isinstance(self.embedding_norm, nn.Identity))
        return num_norms * self.stack.d_model

    def routing_flops(self) -> RoutingFlops:
        return RoutingFlops()
