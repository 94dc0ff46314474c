"""What autograd keeps of a block for its backward pass, counted on a small stack of the design.

Bytes grow in proportion to the width, and hardly otherwise; so a narrow stack tells those of a wide
one, for every design alike and without a formula that would have to follow its code.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from math import log2

import torch
from torch import Tensor

import residuals
from depthbench.config import DesignRef, Precision, Shape
from depthbench.designs import lay_out
from depthbench.model.decoder import Decoder

_WIDTH, _HEADS, _MLP, _DEPTHS = 256, 4, 2, (4, 8)
# A prime: what has so many rows is kept of tokens, all else of weights.
_TOKENS = 31


@dataclass(frozen=True)
class Kept:
    """Bytes a token and unit of width: of the inside of a block, and of the state between two.

    The inside is without the MLP's four tensors and attention's probabilities. `growth`: how much
    more a block keeps in a stack of twice the depth, where later ones look back at earlier ones.
    """

    block: float
    boundary: float
    growth: float = 0.0

    def at(self, num_blocks: int) -> float:
        """Of the inside of a block in a stack of that depth."""
        return self.block + self.growth * max(0.0, log2(num_blocks / _DEPTHS[-1]))


# For a design that does not run: twice what a plain block keeps. Its cells will say what is wrong.
UNKNOWN = Kept(block=96.0, boundary=16.0)


def kept(design: DesignRef, precision: Precision) -> Kept:
    """What the design's blocks keep; weights of bf16 keep at most what autocast does."""
    try:
        known = residuals.get(f"{design.name}@{design.version}")
        options = json.dumps(design.options, sort_keys=True)
        # A plugin that is loaded again is another class of the same name.
        return _counted(known, options, precision != "fp32")
    except Exception:
        return UNKNOWN


@lru_cache(maxsize=64)
def _counted(known: type[residuals.Design], options: str, autocast: bool) -> Kept:
    ref = DesignRef(name=known.name, version=known.version, options=json.loads(options))
    shallow, deep = (_count(ref, depth, autocast) for depth in _DEPTHS)
    return Kept(deep[0], deep[1], max(0.0, deep[0] - shallow[0]))


def _count(design: DesignRef, num_blocks: int, autocast: bool) -> tuple[float, float]:
    shape = Shape(layers=num_blocks, d_model=_WIDTH, ffn=_MLP, heads=_HEADS, kv_heads=_HEADS)
    with torch.device("meta"):
        model = Decoder(shape, 2, lay_out(design, shape, 1e-6))
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    inside: dict[int, int] = {}
    between: dict[int, int] = {}

    def note(tensor: Tensor, where: dict[int, int]) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.nbytes() % _TOKENS == 0:
            where[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids_BT = torch.zeros(_TOKENS, 1, dtype=torch.int64)
    with (
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(lambda x: note(x, inside), lambda x: x),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        seq = model.sequence(1)
        states = [model.design.start(model.embedding(ids_BT))]
        for block, visit in zip(model.blocks, range(0, 2 * num_blocks, 2), strict=True):
            states.append(block(visit, visit, model.design, states[-1], seq))
        model.design.finish(states[-1]).sum()
    for state in states:
        for tensor in state:
            note(tensor, between)
    unit = _TOKENS * _WIDTH
    per_block, per_state = sum(inside.values()) / num_blocks, sum(between.values()) / len(states)
    return per_block / unit, per_state / unit
