"""Prelude, core and coda: the core's blocks are run again and again (arXiv 2610.26030).

`e = N(prelude(embedding))`, `s₀ = e`; each loop `u = W[e; s]` with W = [I | 0] at the start, then
the core's blocks, then `s = N(·)`; at last the coda. With truncation the first T − B loops run
without gradients; e keeps its own through the loops that have them.
"""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from depthbench.config import CoreLoop, Shape
from depthbench.model.cache import Cache
from depthbench.model.decoder import Block, CausalSequence, LanguageModel, run_blocks
from residuals import ROUTING_STATIC, Declared, Design
from residuals.norms import RMSNorm
from residuals.parameters import exactly


class Injection(Declared):
    """`u = W[e; s]` (B, T, D); at the start u is e. Not decayed, which would silence it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        start = torch.eye(width, 2 * width, device="cpu")
        self.declare("weight", (width, 2 * width), ROUTING_STATIC, exactly(start))
        self.weight: nn.Parameter

    def forward(self, e_BTD: Tensor, s_BTD: Tensor) -> Tensor:
        return F.linear(torch.cat((e_BTD, s_BTD), -1), self.weight)


class Part(nn.Module):
    """Blocks with a start and a finish of their own, run once or several times."""

    def __init__(self, shape: Shape, design: Design, times: int = 1) -> None:
        super().__init__()
        self.design = design
        self.blocks = nn.ModuleList(Block(shape, design) for _ in range(design.stack.num_blocks))
        stack = design.stack
        # The same design at the depth of each time. A tuple, so that it is registered once only.
        self.placed = tuple(
            design.at(stack.first_visit + t * stack.num_visits) for t in range(times)
        )

    def forward(
        self, x_BTD: Tensor, seq: CausalSequence, cache: Cache | None = None, time: int = 0
    ) -> Tensor:
        return run_blocks(self.placed[time], self.blocks, x_BTD, seq, cache)


class LoopedDecoder(LanguageModel):
    """Decoder whose core is run `loop.forward` times, with gradients the last `loop.backward`."""

    def __init__(
        self, shape: Shape, vocab_size: int, parts: dict[str, Design], loop: CoreLoop
    ) -> None:
        eps = parts["core"].stack.norm_eps
        super().__init__(shape, vocab_size, eps)
        self.loop = loop
        times = {"core": loop.forward}
        self.parts = nn.ModuleDict(
            {name: Part(shape, design, times.get(name, 1)) for name, design in parts.items()}
        )
        self.prelude_norm = RMSNorm(shape.d_model, eps)
        self.core_norm = RMSNorm(shape.d_model, eps)
        self.injection = Injection(shape.d_model) if loop.injection == "linear" else None

    def read(self, x_BTD: Tensor, seq: CausalSequence, cache: Cache | None) -> Tensor:
        if "prelude" in self.parts:
            x_BTD = self.parts["prelude"](x_BTD, seq, cache)
        e_BTD = s_BTD = self.prelude_norm(x_BTD)
        for t in range(self.loop.forward):
            cut = t < self.loop.forward - self.loop.backward
            with torch.no_grad() if cut else nullcontext():
                x_BTD = self.parts["core"](self._injected(e_BTD, s_BTD), seq, cache, t)
                s_BTD = self.core_norm(x_BTD)
        if "coda" in self.parts:
            s_BTD = self.parts["coda"](s_BTD, seq, cache)
        last_BTD: Tensor = s_BTD
        return last_BTD

    def _injected(self, e_BTD: Tensor, s_BTD: Tensor) -> Tensor:
        match self.loop.injection:
            case "linear":
                u_BTD: Tensor = self.injection(e_BTD, s_BTD)  # type: ignore[misc]
                return u_BTD
            case "add":
                return e_BTD + s_BTD
            case "none":
                return s_BTD
