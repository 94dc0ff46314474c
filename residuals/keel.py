"""KEEL (arXiv 2601.19895)."""

from torch import Tensor, nn

from residuals.contract import Design, RoutingFlops, Stack, State
from residuals.post_ln import scaled_sum
from residuals.registry import register


class InnerOuterNorm(Design):
    """`x ← N_out(α·x + F(N_in(x)))`: what KEEL and DeepLoop share, α by visit.

    Sublayers before `first_outer` have no outer norm.
    """

    def __init__(self, stack: Stack, alpha: float, first_outer: int) -> None:
        super().__init__(stack)
        self.alpha = alpha
        self.first_outer = first_outer
        self.norms = stack.norms()
        self.output_norms = stack.norms(stack.num_sublayers - first_outer)

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return self.norms[k](state[0]), state

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (self._outer(k, visit)(scaled_sum(carry[0], self.alpha, y_BTD)),)

    def _outer(self, k: int, visit: int) -> nn.Module:
        # A sublayer without an outer norm of its own, run at a later place, finds that place's.
        owner = k if k >= self.first_outer else visit % self.stack.num_sublayers
        return self.output_norms[owner - self.first_outer]

    def num_extra_params(self) -> int:
        return (self.stack.num_sublayers - self.first_outer) * self.stack.d_model

    def routing_flops(self) -> RoutingFlops:
        return RoutingFlops()


@register
class KEEL(InnerOuterNorm):
    """`x ← N_out(α·x + F(N_in(x)))` with α = L, the number of sublayers visited.

    First block: the first attention is plain Pre-LN, the first MLP has the outer norm with α = 1.
    `first_block_rule = False` and `inner_norm = False` are controls; `alpha` replaces L. Its peak
    learning rate wants to be 1.5–2 times Pre-LN's.

    In a loop L counts executed sublayers, and the first block's rule holds at the first place only.
    `whole`: L = 2·K·R; from the second round on the first attention, too, has an outer norm, and so
    one gain more. Prelude–core–coda: L is that of the whole model, and the rule holds at the start
    of the prelude, or, without one, of the first loop of the core.
    """

    name = "keel"
    title = "KEEL"
    version = 1
    family = "norm"
    paper = "2601.19895"
    positional = True  # the first block's rule stays at the first place

    def __init__(
        self,
        stack: Stack,
        *,
        alpha: float = 0.0,
        first_block_rule: bool = True,
        inner_norm: bool = True,
    ) -> None:
        # In a loop the first sublayer has an outer norm from its second visit on.
        once = stack.num_rounds == 1 and stack.first_visit == 0 and not stack.restarts
        no_outer = 1 if first_block_rule and once else 0
        super().__init__(stack, alpha or float(stack.num_executed), no_outer)
        self.first_block_rule = first_block_rule
        self.inner_norm = inner_norm
        if not inner_norm:
            del self.norms

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        return super().read(k, visit, state) if self.inner_norm else (state[0], state)

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        executed = self.stack.first_visit + visit
        if not self.first_block_rule or executed > 1:
            return super().write(k, visit, carry, y_BTD)
        added = scaled_sum(carry[0], 1.0, y_BTD)
        return (added if executed == 0 else self._outer(k, visit)(added),)

    def num_extra_params(self) -> int:
        inner = 0 if self.inner_norm else self.stack.num_sublayers * self.stack.d_model
        return super().num_extra_params() - inner
