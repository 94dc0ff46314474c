"""The contract between a residual design and everything else.

A design says, for one sublayer, how its input is read from the depth state and how its output is
written back, how the state starts from the embedding, and how it is read out before the head:

    state = design.start(x)
    for visit in range(stack.num_visits):          # k = visit mod num_sublayers
        x, carry = design.read(k, visit, state)    # x is normed: what the sublayer multiplies
        y = sublayer_k(x)                          # attention asks design.attend on its way
        state = design.write(k, visit, carry, y)
    x = design.finish(state)                       # then the final norm and the head

State and carry are flat tuples of tensors and the only memory between calls: a design keeps nothing
on itself, so that checkpointing, loops, compilation and sharding work. Everything it does is local
to a token. What probes ask of it stands in `residuals.probing`.
"""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor, nn

from residuals.norms import LayerNorm, RMSNorm
from residuals.parameters import Declared
from residuals.probing import Probed
from residuals.probing import State as State


@dataclass(frozen=True)
class Stack:
    """The stack a design serves: K blocks of attention and MLP, visited in `num_rounds` rounds.

    It may be part of a longer one, of `depth` visits, before whose `first_visit` others were made,
    and be run from its own start again later (`restarts`). What depends on depth counts these.
    """

    num_blocks: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    num_rounds: int = 1
    first_visit: int = 0
    depth: int = 0
    restarts: bool = False

    @property
    def num_sublayers(self) -> int:
        """L = 2K."""
        return 2 * self.num_blocks

    @property
    def num_visits(self) -> int:
        """Sublayers executed: 2·K·R."""
        return self.num_sublayers * self.num_rounds

    @property
    def num_executed(self) -> int:
        """Sublayers executed in the whole model, of which this stack may be a part."""
        return self.depth or self.num_visits

    def norms(
        self, count: int | None = None, kind: type[RMSNorm] | type[LayerNorm] = RMSNorm
    ) -> nn.ModuleList:
        """One norm of width d per sublayer, or `count` of them."""
        num = self.num_sublayers if count is None else count
        return nn.ModuleList(kind(self.d_model, self.norm_eps) for _ in range(num))


@dataclass(frozen=True)
class RoutingFlops:
    """What a design adds to one token's forward pass, multiply and add counted as two.

    `matmul`: products that the FLOP counter sees. `mixing`: weighted sums over streams or depth.
    """

    matmul: int = 0
    mixing: int = 0


class Sequence(Protocol):
    """Mixing over positions: rotation, causal mask and key/value cache are the model's."""

    def __call__(self, q_BTHd: Tensor, k_BTGd: Tensor, v_BTGd: Tensor) -> Tensor:
        """Causal attention of queries and keys not yet rotated, scale 1/√d; (B, T, H, d)."""

    def joint(
        self,
        q_BTHd: Tensor,
        k_BTGd: Tensor,
        v_BTGd: Tensor,
        depth_k: State,
        depth_v: State,
        rotate_depth_query: bool = False,
    ) -> Tensor:
        """The same under one softmax with further slots at the query's own position; (B, T, H, d).

        `depth_k` and `depth_v` hold one (B, T, G, 1, d) tensor a slot, never rotated.
        """


class Design(Probed, Declared, ABC):
    """One residual rule. Subclass, set the class attributes, decorate with `@register`.

    Options are the keyword-only arguments of `__init__`, with their defaults; they are recorded in
    every result row. Raise `version` whenever numbers may change.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    version: ClassVar[int]
    family: ClassVar[str]
    paper: ClassVar[str]
    can_loop: ClassVar[bool] = True
    """Whether the rule has a meaning where blocks are run several times."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack = stack

    def at(self, first_visit: int) -> Self:
        """This design, with the same parameters, where its stack begins at another visit."""
        placed = copy(self)
        placed.stack = replace(self.stack, first_visit=first_visit)
        return placed

    def start(self, x_BTD: Tensor) -> State:
        """State from the embedding."""
        return (x_BTD,)

    @abstractmethod
    def read(self, k: int, visit: int, state: State) -> tuple[Tensor, State]:
        """Normed input of sublayer `k` (B, T, D), and what `write` needs; visits are unrolled."""

    @abstractmethod
    def write(self, k: int, visit: int, carry: State, y_BTD: Tensor) -> State:
        """State after the sublayer's output `y`."""

    def attend(
        self, k: int, visit: int, carry: State, q: Tensor, k_: Tensor, v: Tensor, seq: Sequence
    ) -> tuple[Tensor, State]:
        """Attention output (B, T, H, d) and carry; only cross-layer attention overrides it."""
        return seq(q, k_, v), carry

    def init_gain(self, role: str, fan_in: int, fan_out: int) -> float:
        """Factor on the base standard deviation of the matrix `q k v o gate up down`."""
        return 1.0

    def llama_gains(self) -> list[Tensor] | None:
        """The 2K input-norm gains if the stack is exactly a Llama decoder, else None."""
        return None

    @abstractmethod
    def num_extra_params(self) -> int:
        """Parameters beyond Pre-LN's of the same shape, as a formula."""

    @abstractmethod
    def routing_flops(self) -> RoutingFlops:
        """FLOPs per token of one forward pass beyond Pre-LN's, as a formula."""

    @classmethod
    def option_defaults(cls) -> dict[str, Any]:
        """Name and default of every option."""
        parameters = signature(cls.__init__).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is Parameter.KEYWORD_ONLY}

    @classmethod
    def summary(cls) -> str:
        """First line of the docstring."""
        return (cls.__doc__ or "").strip().partition("\n")[0]
