"""What a cell costs, by formula: parameters, FLOPs, cache, memory (protocol: efficiency ledger).

Multiply and add count as two. Attention counts its causal half.
"""

from dataclasses import asdict, dataclass

from depthbench.config import CellConfig, Shape
from depthbench.designs import lay_out
from depthbench.shapes import backbone_parameters, total_parameters
from residuals import Design

PREFILL_TOKENS = 4096
KV_BYTES = 2  # bf16
PROCESS_BYTES = 400 * 2**20  # an idle process with torch loaded


@dataclass(frozen=True)
class Ledger:
    """Counts and costs of one cell; FLOPs of the whole run in `total_flops`."""

    parameters: int
    backbone: int
    added: int
    added_by_design_share: float
    train_flops_per_token: int
    prefill_flops: int
    kv_cache_bytes: int
    total_flops: int

    def as_dict(self) -> dict[str, int | float]:
        return asdict(self)


def forward_flops_per_token(shape: Shape, vocab_size: int, length: int, design: Design) -> int:
    """Forward FLOPs of a token in a sequence of `length`: matrices, attention, routing and head."""
    norms = shape.d_model * 2 * shape.layers
    products = 2 * (backbone_parameters(shape) - norms) + 2 * vocab_size * shape.d_model
    attention = 2 * shape.layers * shape.d_model * length
    routing = design.routing_flops()
    return products + attention + routing.matmul + routing.mixing


def prefill_flops(shape: Shape, design: Design, length: int = PREFILL_TOKENS) -> int:
    """Forward FLOPs of one sequence without the head: 2·N·T + 2·K·d·T², and the routing."""
    routing = design.routing_flops()
    per_token = 2 * backbone_parameters(shape) + routing.matmul + routing.mixing
    return per_token * length + 2 * shape.layers * shape.d_model * length**2


def kv_cache_bytes(shape: Shape, length: int = PREFILL_TOKENS) -> int:
    """Keys and values of one sequence in bf16: the same for every design, all are token-local."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * length * KV_BYTES


def ledger(config: CellConfig) -> Ledger:
    """The ledger of a cell. The design's share is relative to the backbone without it.

    A training step costs three forward passes: one forward, two backward.
    """
    shape, vocab = config.shape, config.corpus.vocab_size
    design = lay_out(config.design, shape, config.norm_eps)
    added = design.num_extra_params()
    per_token = 3 * forward_flops_per_token(shape, vocab, config.sequence_length, design)
    return Ledger(
        parameters=total_parameters(shape, vocab) + added,
        backbone=backbone_parameters(shape),
        added=added,
        added_by_design_share=added / backbone_parameters(shape),
        train_flops_per_token=per_token,
        prefill_flops=prefill_flops(shape, design),
        kv_cache_bytes=kv_cache_bytes(shape),
        total_flops=per_token * config.tokens,
    )


def memory_bytes(config: CellConfig, parameters: int) -> int:
    """Estimated peak of the cell's process, on the generous side: it decides how many run at once.

    Weights, gradients, two moments and one copy in fp32; activations of one micro-batch as a
    plain block keeps them, doubled for what routing keeps.
    """
    s, length = config.shape, config.sequence_length
    # A design's own attention has no kernel that recomputes its probabilities.
    own = type(lay_out(config.design, s, config.norm_eps)).attend is not Design.attend
    kept = 2 * s.heads * (length if own else min(length, 512))
    per_token = s.layers * (24 * s.d_model + 5 * s.ffn + kept)
    activations = 2 * 4 * config.micro_batch_size * length * per_token
    return PROCESS_BYTES + 20 * parameters + activations


def disk_bytes(parameters: int) -> int:
    """Two checkpoints of weights and moments, one being written, final weights, and logs."""
    return 3 * 12 * parameters + 4 * parameters + 2**20
