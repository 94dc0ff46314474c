"""HybridNorm (Zhuo et al., arXiv 2503.04598)."""

from torch import Tensor, nn

from residuals.contract import Design, RoutingFlops, Sequence, Stack, State
from residuals.norms import RMSNorm
from residuals.registry import register


@register
class HybridNorm(Design):
    """`Y = X + A(X)`, `X ← N(Y) + F(N(Y))`: norms inside attention, and on the stream at the MLP.

    A is attention of the un-normed stream with `softmax(N_q(Q) N_k(K)ᵀ/√d) N_v(V)`: RMSNorm of each
    head, with one gain (d,) each for queries, keys and values that all heads of a block share (the
    paper does not say whether they do). What the paper calls Post-Norm in the MLP keeps N(Y), and
    not Y, as the residual.

    `pre_norm_first` is HybridNorm*: the first block is Pre-LN, `Y = X + A(N(X))`,
    `X ← Y + F(N(Y))`, its attention with normed Q, K and V like the others'.

    In a loop a block has the same gains at every visit, and HybridNorm*'s rule holds at the first
    block executed only: in the first round of the `whole` layout; in prelude–core–coda at the start
    of the prelude, or, without one, of the first loop of the core. Nothing else depends on depth.
    """

    name = "hybridnorm"
    title = "HybridNorm"
    version = 1
    family = "norm"
    paper = "2503.04598"
    positional = True  # the first block's rule stays at the first place

    def __init__(self, stack: Stack, *, pre_norm_first: bool = False) -> None:
        super().__init__(stack)
        self.norms = stack.norms(stack.num_blocks)
        self.q_norms, self.k_norms, self.v_norms = (
            nn.ModuleList(RMSNorm(stack.head_dim, stack.norm_eps) for _ in range(stack.num_blocks))
            for _ in range(3)
        )
        self.has_rule = pre_norm_first and stack.first_visit == 0
        if self.has_rule:
            self.first_norm = stack.norms(1)[0]

    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        x_BTD = state[0]
        is_first = self.has_rule and self.stack.first_visit + visit < 2
        if k % 2 == 0:
            return self.first_norm(x_BTD) if is_first else x_BTD, state
        normed_BTD = self.norms[k // 2](x_BTD)
        return normed_BTD, state if is_first else (normed_BTD,)

    def attend(
        self, k: int, visit: int, carry: State, q: Tensor, k_: Tensor, v: Tensor, seq: Sequence
    ) -> tuple[Tensor, State]:
        block = k // 2
        q, k_, v = self.q_norms[block](q), self.k_norms[block](k_), self.v_norms[block](v)
        return seq(q, k_, v), carry

    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        return (carry[0] + y_BTD,)

    def num_extra_params(self) -> int:
        per_block = 3 * self.stack.head_dim - self.stack.d_model
        return self.stack.num_blocks * per_block + self.has_rule * self.stack.d_model

    def routing_flops(self) -> RoutingFlops:
        return RoutingFlops()
