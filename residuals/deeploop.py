"""DeepLoop (arXiv 2607.13491): KEEL's form with scales for weights that are visited R times."""

from torch import Tensor, nn

from residuals.contract import Stack, State
from residuals.deepnorm import BRANCH_ROLES
from residuals.keel import InnerOuterNorm
from residuals.registry import register


@register
class DeepLoop(InnerOuterNorm):
    """`x ← N_out(α·x + F(N_in(x)))`, `α = (2N)^½`, initial gain `β = (8N)^-½`, N = K·R blocks.

    The half powers keep `2N·κ·(β/α)²` bounded for visit alignment κ up to R. β scales V, O and the
    MLP, once on the shared tensors. The embedding is normed unless `embedding_norm = False`.

    N counts executed blocks, those of loops without gradients included. `whole`: N = K·R, and the
    embedding is normed once. Prelude–core–coda: N is that of the whole model in every segment, and
    each segment, and each loop of the core, norms what it starts from; loops share that norm.
    """

    name = "deeploop"
    title = "DeepLoop"
    version = 1
    family = "norm"
    paper = "2607.13491"

    def __init__(self, stack: Stack, *, embedding_norm: bool = True) -> None:
        super().__init__(stack, alpha=stack.num_executed**0.5, first_outer=0)
        self.beta = (4 * stack.num_executed) ** -0.5
        self.embedding_norm = stack.norms(1)[0] if embedding_norm else nn.Identity()

    def start(self, x_BTD: Tensor) -> State:
        return (self.embedding_norm(x_BTD),)

    def init_gain(self, role: str, fan_in: int, fan_out: int) -> float:
        return self.beta if role in BRANCH_ROLES else 1.0

    def num_extra_params(self) -> int:
        embedding_norm = 0 if isinstance(self.embedding_norm, nn.Identity) else self.stack.d_model
        return super().num_extra_params() + embedding_norm
