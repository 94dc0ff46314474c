"""A model as the segments that it runs: blocks from a start of the design to its finish.

A plain stack or a whole loop is one segment. A prelude, every loop of a core and a coda are one
each, with a start, a state and a finish of their own. For probes, which see the blocks of all
segments in the order of execution, that means:

- Depth state: z before a segment's first block is that of the state from which it starts, after
  norm and injection. What lies between two segments so belongs to the step of the block before it.
- Read-out: what the head would read if no block were run any more. The design reads its state out
  and the norm behind the segment stays, for what it leaves is the stream that further loops and
  the coda would go on from; without these the final norm reads it.
- Left out, a block has written nothing in its segment, and everything behind runs on that. Without
  a block of the prelude all loops inject another e. A block of the core is left out of one loop,
  and e stays.
- Exchanged are two blocks of one segment. What a design keeps for a place stands in the state, and
  two segments have two of them: for other pairs no design says what should travel.
- Path weights, mixings and partial sums are those within a segment. From one segment to another
  there are none, as norms and injections lie between.
- Gradients are those of training: loops that are cut have none, nor has what acts through these
  alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

from torch import Tensor, nn

from depthbench.model.decoder import Block, Decoder, LanguageModel
from depthbench.model.looped import Core, LoopedDecoder
from residuals import Design

Flow = tuple[Tensor, Tensor]
"""e, which loops inject, and what is handed on; each (B, T, D)."""
Gate = Callable[[Tensor, Tensor], Flow]


@dataclass(frozen=True)
class Segment:
    """Blocks that share one state, run once or in rounds; the first of them at place `first`.

    `enter` makes of e and what is handed on e and what the design starts from, `leave` of e and
    the design's finish e and what is handed on. A `cut` segment has no gradients in training.
    """

    design: Design
    blocks: nn.ModuleList
    first: int
    enter: Gate
    leave: Gate
    cut: bool = False

    @property
    def places(self) -> range:
        """Where it runs in the order of execution."""
        return range(self.first, self.first + self.design.stack.num_visits // 2)

    def block(self, place: int) -> tuple[Block, int]:
        """The block that belongs to `place`, and the number k of its attention."""
        b = (place - self.first) % self.design.stack.num_blocks
        return cast(Block, self.blocks[b]), 2 * b


class Layout(NamedTuple):
    """`begin` makes e and what is handed on of the embedding."""

    begin: Callable[[Tensor], Flow]
    segments: list[Segment]


def layout_of(model: LanguageModel) -> Layout:
    """One segment for a plain stack or a whole loop; else prelude, every loop of the core, coda."""
    if isinstance(model, LoopedDecoder):
        return _looped(model)
    if isinstance(model, Decoder):
        stack = Segment(model.design, model.blocks, 0, _as_it_is, _as_it_is)
        return Layout(_handed_on, [stack])
    raise TypeError(f"probes know no layout of {type(model).__name__}")


def _looped(model: LoopedDecoder) -> Layout:
    def opened(x_BTD: Tensor) -> Flow:
        e_BTD: Tensor = model.prelude_norm(x_BTD)
        return e_BTD, e_BTD

    segments: list[Segment] = []
    prelude, coda = model.prelude, model.coda
    if prelude is not None:
        segments.append(
            Segment(prelude.placed[0], prelude.blocks, 0, _as_it_is, lambda _, x: opened(x))
        )
    for t in range(model.loop.forward):
        core, time = model.core_at(t)
        gates = _injecting(core), _normed(core)
        cut = t < model.loop.num_cut
        segments.append(Segment(core.placed[time], core.blocks, _end(segments), *gates, cut))
    if coda is not None:
        segments.append(Segment(coda.placed[0], coda.blocks, _end(segments), _as_it_is, _as_it_is))
    return Layout(opened if prelude is None else _handed_on, segments)


def _end(segments: list[Segment]) -> int:
    return segments[-1].places.stop if segments else 0


def _handed_on(x_BTD: Tensor) -> Flow:
    return x_BTD, x_BTD


def _as_it_is(e_BTD: Tensor, x_BTD: Tensor) -> Flow:
    return e_BTD, x_BTD


def _injecting(core: Core) -> Gate:
    return lambda e_BTD, s_BTD: (e_BTD, core.injected(e_BTD, s_BTD))


def _normed(core: Core) -> Gate:
    return lambda e_BTD, x_BTD: (e_BTD, core.norm(x_BTD))
