"""Shapes, their parameter counts, the ladders of `shapes.yaml`, and a solver that proposes one."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from depthbench.assets import asset
from depthbench.config import Frozen, Shape
from depthbench.errors import InputError
from depthbench.inputs import read_yaml, validated

MatchOn = Literal["total", "backbone"]
_FFN_MULTIPLE = 16


def block_parameters(shape: Shape) -> int:
    """Parameters of one Pre-LN block: q, k, v, o, gate, up, down and two norm gains."""
    d = shape.d_model
    key_value = 2 * d * shape.kv_heads * shape.head_dim
    return 2 * d * d + key_value + 3 * d * shape.ffn + 2 * d


def backbone_parameters(shape: Shape) -> int:
    """Parameters of all Pre-LN blocks, without embedding, head and final norm."""
    return shape.layers * block_parameters(shape)


def total_parameters(shape: Shape, vocab_size: int) -> int:
    """Parameters of the Pre-LN model: backbone, embedding, untied head, final norm."""
    return backbone_parameters(shape) + 2 * vocab_size * shape.d_model + shape.d_model


class Ladder(Frozen):
    """Shapes that share one parameter budget: each count within `tolerance` of `target`.

    With `match_on` null it is a ladder of sizes, as scaling laws need: no target holds it.
    """

    name: str = Field(min_length=1)
    description: str = ""
    match_on: MatchOn | None
    target: int | None = Field(None, ge=1)
    tolerance: float | None = Field(None, gt=0, le=0.5)
    vocab_size: int = Field(ge=2)
    norm_eps: float = Field(gt=0)
    shapes: tuple[Shape, ...] = Field(min_length=1)

    def count(self, shape: Shape) -> int:
        """The count this ladder matches, for Pre-LN of `shape`; of sizes, the backbone's."""
        return _count(shape, self.match_on or "backbone", self.vocab_size)

    @model_validator(mode="after")
    def _distinct(self) -> "Ladder":
        for index, shape in enumerate(self.shapes):
            if shape in self.shapes[:index]:
                raise ValueError(f"shapes.{index} repeats {_named(shape)}: a ladder lists it once")
        return self

    @model_validator(mode="after")
    def _matched(self) -> "Ladder":
        given = {name for name in ("target", "tolerance") if getattr(self, name) is not None}
        if given != ({"target", "tolerance"} if self.match_on else set()):
            raise ValueError(
                f"match_on = {self.match_on or 'null'} with {' and '.join(sorted(given)) or 'none'}"
                " of target and tolerance: a matched ladder has both, a ladder of sizes neither"
            )
        for index, shape in enumerate(self.shapes):
            deviation = self.deviation(self.count(shape))
            if deviation:
                raise ValueError(
                    f"shapes.{index}, {_named(shape)}, has {self.match_on} {self.count(shape):,}, "
                    f"{deviation}: change its width or ffn, or let `depthbench shapes solve` "
                    "propose"
                )
        return self

    def deviation(self, count: int) -> str:
        """How `count` misses the target, in words; nothing where it is within the tolerance."""
        if self.target is None or self.tolerance is None:
            return ""
        miss = count / self.target - 1
        if abs(miss) <= self.tolerance:
            return ""
        return f"{miss:+.1%} from the target {self.target:,} where {self.tolerance:.1%} is allowed"


def load_ladders(path: Path | None = None) -> dict[str, Ladder]:
    """Ladders by name from `path`, by default the shipped `shapes.yaml`.

    Raises `InputError` for an unknown key (with the nearest one), a head count that does not fit,
    and a shape outside its ladder's tolerance (with its count).
    """
    file = path or asset("shapes.yaml")
    document = read_yaml(file)
    if not isinstance(document, dict):
        raise InputError(f"{file}: expected a mapping of ladder names, found {document!r}")
    return {
        str(name): validated(Ladder, _with_name(name, body), f"{file}: {name}")
        for name, body in document.items()
    }


def solve_ladder(
    target: int,
    depths: Sequence[int],
    vocab_size: int,
    *,
    heads: int | None = None,
    head_dim: int | None = None,
    match_on: MatchOn = "total",
    tolerance: float = 0.03,
    kv_ratio: int = 1,
    norm_eps: float = 1e-6,
    name: str = "solved",
) -> Ladder:
    """A ladder of one shape per depth, each within `tolerance` of `target` parameters.

    Give `heads` (as the paper: the head dimension shrinks with the width) or `head_dim`.
    `kv_ratio` query heads share one key-value head. The width that comes nearest with
    `ffn = ceil(8 d / 3)` to a multiple of 16 is taken; where that misses, `ffn` is any integer
    between d and 4 d. Raises `InputError` naming the first depth for which nothing fits.
    """
    if (heads is None) == (head_dim is None):
        raise InputError("give either heads or head_dim, not both and not neither")
    if head_dim is not None and head_dim % 2:
        raise InputError(f"head_dim = {head_dim} is odd: rotary position needs pairs")
    if heads is not None and heads % kv_ratio:
        raise InputError(f"kv_ratio = {kv_ratio} does not divide heads = {heads}: choose a divisor")
    if target < 1 or min([heads or 1, head_dim or 2, kv_ratio, *depths], default=0) < 1:
        raise InputError("target, depths, heads, head_dim and kv_ratio must all be at least 1")

    def count(shape: Shape) -> int:
        return _count(shape, match_on, vocab_size)

    document = {
        "name": name,
        "match_on": match_on,
        "target": target,
        "tolerance": tolerance,
        "vocab_size": vocab_size,
        "norm_eps": norm_eps,
        "shapes": [
            _nearest_shape(_widths(layers, heads, head_dim, kv_ratio), target, tolerance, count)
            for layers in depths
        ],
    }
    return validated(Ladder, document, name)


def _nearest_shape(
    widths: Iterator[Shape], target: int, tolerance: float, count: Callable[[Shape], int]
) -> Shape:
    def miss(shape: Shape) -> float:
        return abs(count(shape) / target - 1)

    near: list[Shape] = []  # the last shape below the target and the first above
    for shape in widths:
        near = [*near[-1:], shape]
        if count(shape) > target:
            break
    best = min(near, key=miss)
    if miss(best) <= tolerance:
        return best
    refitted = [_fit_ffn(shape, target, count(shape)) for shape in near]
    usable = [s for s in refitted if s.d_model <= s.ffn <= 4 * s.d_model and miss(s) <= tolerance]
    if not usable:
        raise InputError(
            f"no shape of {best.layers} layers comes within {tolerance:.1%} of {target:,}: the "
            f"nearest, {_named(best)}, has {count(best):,}. Change the depth, heads or tolerance."
        )
    return min(usable, key=lambda s: abs(math.log(s.ffn / (8 * s.d_model / 3))))


def to_yaml(ladder: Ladder) -> str:
    """The ladder as an entry of `shapes.yaml`, each shape with its count."""
    lines = [f"{ladder.name}:"]
    lines += [f"  {name}: {getattr(ladder, name)}" for name in ("match_on", "target", "tolerance")]
    lines += [f"  vocab_size: {ladder.vocab_size}", f"  norm_eps: {ladder.norm_eps}", "  shapes:"]
    for shape in ladder.shapes:
        fields = ", ".join(f"{name}: {value}" for name, value in shape.model_dump().items())
        lines.append(f"    - {{{fields}}}  # {ladder.match_on} {ladder.count(shape):,}")
    return "\n".join(lines) + "\n"


def _widths(layers: int, heads: int | None, head_dim: int | None, kv_ratio: int) -> Iterator[Shape]:
    """Shapes of growing width whose head dimension is even."""
    step = 1
    while True:
        num_heads = heads if heads is not None else step * kv_ratio
        width = num_heads * (head_dim if head_dim is not None else 2 * step)
        ffn = -(-8 * width // (3 * _FFN_MULTIPLE)) * _FFN_MULTIPLE
        yield Shape(
            layers=layers, d_model=width, ffn=ffn, heads=num_heads, kv_heads=num_heads // kv_ratio
        )
        step += 1


def _fit_ffn(shape: Shape, target: int, count: int) -> Shape:
    """`shape`, which has `count` parameters, with the integer `ffn` that comes nearest `target`."""
    surplus = round((count - target) / (3 * shape.d_model * shape.layers))
    return shape.model_copy(update={"ffn": max(1, shape.ffn - surplus)})


def _count(shape: Shape, match_on: MatchOn, vocab_size: int) -> int:
    if match_on == "backbone":
        return backbone_parameters(shape)
    return total_parameters(shape, vocab_size)


def _named(shape: Shape) -> str:
    return (
        f"{shape.layers} layers × {shape.d_model} "
        f"({shape.heads} heads × {shape.head_dim}, ffn {shape.ffn})"
    )


def _with_name(name: object, body: Any) -> Any:
    return {"name": str(name), **body} if isinstance(body, dict) else body
