"""What a cell costs, by formula: parameters, FLOPs, cache (protocol: efficiency ledger).

Multiply and add count as two. Attention counts its causal half.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

import residuals
from depthbench.config import CellConfig, CoreLoop, DesignRef, Loop, Shape
from depthbench.designs import lay_out_parts
from depthbench.shapes import backbone_parameters, block_parameters
from residuals import Design

PREFILL_TOKENS = 4096
KV_BYTES = 2  # bf16


@dataclass(frozen=True)
class Ledger:
    """Counts and costs of one cell; FLOPs of the whole run in `total_flops`.

    `once` and `recurrent`: parameters between embedding and head that a forward pass uses once, and
    those that it uses in every loop. `executed`: all of these, as often as they are used.
    """

    parameters: int
    backbone: int
    added: int
    added_by_design_share: float
    once: int
    recurrent: int
    executed: int
    forward_flops_per_token: int
    backward_flops_per_token: int
    train_flops_per_token: int
    prefill_flops: int
    kv_cache_bytes: int
    total_flops: int

    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)


@dataclass(frozen=True)
class Part:
    """Some blocks of the stack, run `forward` times with gradients `backward` times a step.

    `matrices`: parameters that are multiplied with every token; `others`: gains and the like.
    `shared`: whether loops share them, if only one is run.
    """

    design: Design
    num_blocks: int
    matrices: int
    others: int
    forward: int
    backward: int
    shared: bool = False

    @property
    def parameters(self) -> int:
        return self.matrices + self.others + self.design.num_extra_params()

    def flops_per_token(self, d_model: int, length: int) -> int:
        """Of running it once: matrices, the causal half of attention, and routing."""
        rounds = self.design.stack.num_rounds
        attention = 2 * self.num_blocks * d_model * length
        routing = self.design.routing_flops()
        return (2 * self.matrices + attention) * rounds + routing.matmul + routing.mixing


def parts(config: CellConfig) -> Sequence[Part]:
    """What the stack of a cell consists of."""
    design = config.design
    # A plugin that is loaded again is another class of the same name.
    known = residuals.get(f"{design.name}@{design.version}")
    options = json.dumps(design.options, sort_keys=True)
    return _parts(known, options, config.shape, config.norm_eps, config.loop)


@lru_cache(maxsize=256)
def _parts(
    known: type[Design], options: str, shape: Shape, norm_eps: float, loop: Loop | None
) -> tuple[Part, ...]:
    ref = DesignRef(name=known.name, version=known.version, options=json.loads(options))
    d, block = shape.d_model, block_parameters(shape)
    found = []
    for name, design in lay_out_parts(ref, shape, norm_eps, loop).items():
        num = design.stack.num_blocks
        matrices, others, forward, backward = num * (block - 2 * d), num * 2 * d, 1, 1
        shared = design.stack.num_rounds > 1
        if isinstance(loop, CoreLoop) and name in loop.core_names:
            shared = loop.tied
            times = loop.forward // loop.num_cores
            forward, backward = times, times - loop.num_cut
            matrices += 2 * d * d if loop.injection == "linear" else 0
            others += d  # the norm after each loop
        found.append(Part(design, num, matrices, others, forward, backward, shared))
    return tuple(found)


def forward_flops_per_token(shape: Shape, vocab_size: int, length: int, design: Design) -> int:
    """Forward FLOPs of a token in a sequence of `length`: matrices, attention, routing and head."""
    whole = _whole(shape, design)
    return whole.flops_per_token(shape.d_model, length) + 2 * vocab_size * shape.d_model


def prefill_flops(shape: Shape, design: Design, length: int = PREFILL_TOKENS) -> int:
    """Forward FLOPs of one sequence without the head: 2·N·T + 2·K·d·T², and the routing."""
    return _prefill([_whole(shape, design)], shape.d_model, length)


def _whole(shape: Shape, design: Design) -> Part:
    gains = 2 * shape.d_model * shape.layers
    return Part(design, shape.layers, backbone_parameters(shape) - gains, gains, 1, 1)


def _prefill(stack: Sequence[Part], d_model: int, length: int) -> int:
    # The published count takes every parameter of a block, its gains too.
    per_token = sum(
        part.forward
        * (part.flops_per_token(d_model, length) + 2 * part.others * part.design.stack.num_rounds)
        for part in stack
    )
    return per_token * length


def kv_cache_bytes(shape: Shape, length: int = PREFILL_TOKENS) -> int:
    """Keys and values of one sequence in bf16: the same for every design, all are token-local."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * length * KV_BYTES


def ledger(config: CellConfig) -> Ledger:
    """The ledger of a cell. The design's share is relative to the backbone without it.

    A backward pass costs two forward passes, of the loops that have gradients.
    """
    shape, vocab, length = config.shape, config.corpus.vocab_size, config.sequence_length
    d, stack = shape.d_model, parts(config)
    head = 2 * vocab * d
    once = [part.flops_per_token(d, length) for part in stack]
    forward = head + sum(part.forward * flops for part, flops in zip(stack, once, strict=True))
    backward = 2 * (
        head + sum(part.backward * flops for part, flops in zip(stack, once, strict=True))
    )
    added = sum(part.design.num_extra_params() for part in stack)
    runs = [part.forward * part.design.stack.num_rounds for part in stack]
    recurrent = sum(part.parameters for part in stack if part.shared)
    # The norm of what is injected stands between the parts, and is run once.
    between = d if isinstance(config.loop, CoreLoop) else 0
    in_stack = sum(part.parameters for part in stack) + between
    backbone = in_stack - added
    return Ledger(
        parameters=2 * vocab * d + d + in_stack,
        backbone=backbone,
        added=added,
        added_by_design_share=added / backbone,
        once=in_stack - recurrent,
        recurrent=recurrent,
        executed=between
        + sum(part.parameters * num for part, num in zip(stack, runs, strict=True)),
        forward_flops_per_token=forward,
        backward_flops_per_token=backward,
        train_flops_per_token=forward + backward,
        prefill_flops=_prefill(stack, d, PREFILL_TOKENS),
        kv_cache_bytes=sum(
            kv_cache_bytes(shape.model_copy(update={"layers": part.num_blocks * num}))
            for part, num in zip(stack, runs, strict=True)
        ),
        total_flops=(forward + backward) * config.tokens,
    )
