"""Prelude, core and coda: the core's blocks are run again and again (arXiv 2610.26030).

`e = N(prelude(embedding))`, `s₀ = e`; each loop `u = W[e; s]` with W = [I | 0] at the start, then
the core's blocks, then `s = N(·)`; at last the coda. With truncation the first T − B loops run
without gradients; e keeps its own through the loops that have them.
"""

from contextlib import nullcontext
from typing import Literal, cast

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


class Core(Part):
    """The blocks that are looped, between the injection and the norm of a loop."""

    def __init__(
        self, shape: Shape, design: Design, times: int, injection: Literal["linear", "add", "none"]
    ) -> None:
        super().__init__(shape, design, times)
        self.how = injection
        self.injection = Injection(shape.d_model) if injection == "linear" else None
        self.norm = RMSNorm(shape.d_model, design.stack.norm_eps)

    def injected(self, e_BTD: Tensor, s_BTD: Tensor) -> Tensor:
        """What the first block starts from."""
        if self.injection is not None:
            u_BTD: Tensor = self.injection(e_BTD, s_BTD)
            return u_BTD
        return e_BTD + s_BTD if self.how == "add" else s_BTD

    def loop(
        self, e_BTD: Tensor, s_BTD: Tensor, seq: CausalSequence, cache: Cache | None, time: int
    ) -> Tensor:
        """s after one loop."""
        x_BTD = self(self.injected(e_BTD, s_BTD), seq, cache, time)
        after_BTD: Tensor = self.norm(x_BTD)
        return after_BTD


class LoopedDecoder(LanguageModel):
    """Decoder whose core is run `loop.forward` times, with gradients the last `loop.backward`.

    Untied, every loop has a core of its own: the control that sharing is compared with.
    """

    def __init__(
        self, shape: Shape, vocab_size: int, parts: dict[str, Design], loop: CoreLoop
    ) -> None:
        eps = next(iter(parts.values())).stack.norm_eps
        super().__init__(shape, vocab_size, eps)
        self.loop = loop
        times = loop.forward // loop.num_cores
        self.prelude = Part(shape, parts["prelude"]) if "prelude" in parts else None
        self.prelude_norm = RMSNorm(shape.d_model, eps)
        self.cores = nn.ModuleList(
            Core(shape, parts[name], times, loop.injection) for name in loop.core_names
        )
        self.coda = Part(shape, parts["coda"]) if "coda" in parts else None

    def core_at(self, t: int) -> tuple[Core, int]:
        """The core that loop t runs, and how often it was run before."""
        time, which = divmod(t, self.loop.num_cores)
        return cast(Core, self.cores[which]), time

    def read(self, x_BTD: Tensor, seq: CausalSequence, cache: Cache | None) -> Tensor:
        if self.prelude is not None:
            x_BTD = self.prelude(x_BTD, seq, cache)
        e_BTD = s_BTD = self.prelude_norm(x_BTD)
        for t in range(self.loop.forward):
            core, time = self.core_at(t)
            if t == self.loop.num_cut and not torch.compiler.is_compiling():
                # Until torch 2.10 autocast kept the casts it had made without gradients.
                torch.clear_autocast_cache()
            with torch.no_grad() if t < self.loop.num_cut else nullcontext():
                s_BTD = core.loop(e_BTD, s_BTD, seq, cache, time)
        last_BTD: Tensor = s_BTD if self.coda is None else self.coda(s_BTD, seq, cache)
        return last_BTD
