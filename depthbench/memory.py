"""What a cell needs of memory and of disk: estimates, on the generous side.

They decide how many cells run at once, and whether one fits at all. What a device really holds
depends on its allocator and kernels: the first steps of a cell are the proof.
"""

from collections.abc import Sequence

from depthbench.activations import kept
from depthbench.config import CellConfig, Ranks
from depthbench.ledger import Part, parts
from depthbench.model.attention import LONGEST_BLOCKWISE
from depthbench.model.flex import NARROWEST
from residuals import Design

PROCESS_BYTES = 400 * 2**20  # an idle process with torch loaded
CONTEXT_BYTES = 3 * 2**29  # of an accelerator: its context and the workspaces of its libraries
HOST_BYTES = 4 * 2**30  # of a process that drives one
MOMENTS = 2


def weight_bytes(config: CellConfig) -> int:
    """Of one parameter, its gradient, or one of its two moments."""
    return 2 if config.precision == "paper_bf16" else 4


def memory_bytes(config: CellConfig, parameters: int) -> int:
    """Peak of all ranks in the memory of the machine that they run on."""
    if config.device == "cpu":
        return config.ranks.num * rank_bytes(config, parameters)
    # A checkpoint passes through it.
    state = (1 + MOMENTS) * weight_bytes(config) * parameters
    return config.ranks.num * HOST_BYTES + state


def rank_bytes(config: CellConfig, parameters: int) -> int:
    """Peak of one rank on its device: what is there before, state, and activations."""
    before = PROCESS_BYTES if config.device == "cpu" else CONTEXT_BYTES
    return before + state_bytes(config, parameters) + activation_bytes(config)


def state_bytes(config: CellConfig, parameters: int) -> int:
    """Weights, gradients and moments on one rank, and what is copied or gathered of them.

    A rank that holds all of the model has one copy more: casts, the head's gradient. Under FSDP it
    has its share of the four, whole the root unit and two blocks; whole gradients while several
    micro-batches add up, and whole the casts that wait for the backward pass.
    """
    size, num = weight_bytes(config), config.ranks.num
    held = (2 + MOMENTS) * size
    if num == 1 or config.ranks.mode == "ddp":
        return (held + size) * parameters
    stack = parts(config)
    in_blocks = sum(part.matrices + part.others for part in stack)
    gathered = parameters - in_blocks + 2 * in_blocks // sum(part.num_blocks for part in stack)
    whole = size * parameters if _sequences(config) > _micro_batch(config) else 0
    if config.precision == "bf16" and not config.activation_checkpointing:
        whole += 2 * parameters
    return -(-held * parameters // num) + 3 * size * gathered + whole


def activation_bytes(config: CellConfig) -> int:
    """What one rank keeps of a micro-batch, with two blocks more for the one that runs backward.

    With activation checkpointing it keeps the states between blocks and the inside of one.
    """
    stack, shape = parts(config), config.shape
    num_kept = sum(p.num_blocks * p.backward * p.design.stack.num_rounds for p in stack)
    counted = kept(config.design, config.precision)
    product = 4 if config.precision == "fp32" else 2
    inside = shape.d_model * counted.at(max(part.num_blocks for part in stack))
    inside += 4 * shape.ffn * product + _probabilities(config, stack)
    between = shape.d_model * counted.boundary
    blocks = num_kept * between + inside if config.activation_checkpointing else num_kept * inside
    # Around the blocks: embedding, final norm, the head's input and its gradient.
    ends = 5 * 4 * shape.d_model
    return round(_micro_batch(config) * config.sequence_length * (blocks + 2 * inside + ends))


def _probabilities(config: CellConfig, stack: Sequence[Part]) -> int:
    """Bytes a token and block of what attention keeps besides its inputs and outputs."""
    shape, length = config.shape, config.sequence_length
    on_cpu = config.device == "cpu" and config.precision == "fp32"
    if on_cpu and shape.kv_heads == shape.heads and length <= LONGEST_BLOCKWISE:
        return 4 * shape.heads * length
    own = type(stack[0].design).attend is not Design.attend
    fused = config.device.startswith("cuda") and shape.head_dim >= NARROWEST
    # Probabilities in fp32 and, of narrower types, as they are multiplied.
    return 8 * shape.heads * length if own and not fused else 0


def _sequences(config: CellConfig) -> int:
    """Of each step, on the rank that has most."""
    return -(-config.batch_size // config.ranks.num)


def _micro_batch(config: CellConfig) -> int:
    return min(config.micro_batch_size, _sequences(config))


def needed(config: CellConfig, parameters: int, room: int) -> tuple[str, ...] | None:
    """What to set so that a rank fits into `room` bytes: nothing, one of two, or both.

    None if that is not enough: a smaller micro-batch, more ranks, or another device.
    """
    sharded: dict[str, object] = {"ranks": Ranks(num=config.ranks.num, mode="fsdp")}
    recomputed: dict[str, object] = {"activation_checkpointing": True}
    changes: dict[tuple[str, ...], dict[str, object]] = {
        (): {},
        ("ranks.mode=fsdp",): sharded,
        ("activation_checkpointing=true",): recomputed,
        ("ranks.mode=fsdp", "activation_checkpointing=true"): sharded | recomputed,
    }
    for names, change in changes.items():
        if rank_bytes(config.model_copy(update=change), parameters) <= room:
            return names
    return None


def disk_bytes(config: CellConfig, parameters: int) -> int:
    """Two checkpoints of weights and moments, one being written, final weights, and logs."""
    size = weight_bytes(config)
    return 3 * (1 + MOMENTS) * size * parameters + size * parameters + 2**20
