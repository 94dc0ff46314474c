"""Stacks of a looped part: the runs of one shape, loop and budget, and what they stand beside."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from depthbench.config import CoreLoop, Loop
from depthbench.report.lines import (
    NO_RESULT,
    Blank,
    Line,
    ShapeKey,
    Spread,
    lines_of,
    spread,
    status_text,
)
from depthbench.report.loops import (
    KINDS,
    Loops,
    is_plain,
    is_tied,
    loops_of,
    read_loop,
    untied_of,
    words,
)
from depthbench.report.series import Series
from depthbench.report.values import count
from depthbench.store import Record

IS_PLAIN = "this stack has no loop"
NOT_LOOPED = "no block of this stack is run twice"
NO_PLAIN = "no stack of this shape was trained without a loop on as many tokens"
NO_EQUAL_FLOPS = "no stack of as many blocks was trained without a loop on as many FLOPs"
NO_UNTIED = "no untied stack of as many blocks was trained on as many tokens"
NO_SHARED_SEED = "no seed is finished in both"


@dataclass(frozen=True)
class Stack:
    """All runs of one design, shape, loop, number of tokens and learning rate."""

    line: Line
    loop: Loop | None
    tokens: int

    @property
    def series(self) -> Series:
        return self.line.series

    @property
    def shape(self) -> ShapeKey:
        return self.line.shape

    @cached_property
    def loops(self) -> Loops:
        return loops_of(self.loop)

    @property
    def executed(self) -> int:
        """Blocks run in one forward pass."""
        layers = self.shape.layers
        return layers if self.loop is None else self.loop.executed_blocks(layers)

    @property
    def is_plain(self) -> bool:
        return is_plain(self.loop)

    @property
    def is_tied(self) -> bool:
        return is_tied(self.loop)

    @property
    def has_all_gradients(self) -> bool:
        """Whether gradients pass every visit."""
        return self.loop is None or self.loop.backward == self.loop.forward

    @property
    def flops(self) -> float | None:
        """Of a whole run."""
        known = (r["total_flops"] for r in self.line.records if r["total_flops"] is not None)
        return next(known, None)

    @property
    def loss(self) -> Spread | None:
        """None before a run has finished."""
        found = self.line.loss
        return found if isinstance(found, Spread) else None

    @property
    def label(self) -> str:
        """Shape, loop and budget."""
        return f"{self.shape.label}, {words(self.loop)}, {count(self.tokens)} tokens"


def stacks_of(records: Iterable[Record]) -> list[Stack]:
    """By shape, budget, executed blocks and design; of one stack the best learning rate first."""
    groups: dict[tuple[str | None, int], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["loop"], record["tokens"]].append(record)
    stacks = [
        Stack(line, read_loop(text), tokens)
        for (text, tokens), members in groups.items()
        for line in lines_of(members)
    ]
    return sorted(stacks, key=_order)


def _order(stack: Stack) -> tuple[object, ...]:
    loops, shape = stack.loops, stack.shape
    place = (shape.layers, shape.d_model, stack.tokens)
    return (*place, KINDS.index(loops.kind), stack.executed, loops.backward, words(stack.loop))


Key = tuple[Series, ShapeKey, Loop | None, int]


class Stacks:
    """The stacks of a looped part, of several learning rates the best, and their controls."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.every = stacks_of(records)
        self._best: dict[Key, Stack] = {}
        for stack in sorted(self.every, key=_by_loss):
            self._best.setdefault(_key(stack), stack)

    @property
    def best(self) -> list[Stack]:
        """In the order of `every`."""
        kept = {id(stack) for stack in self._best.values()}
        return [stack for stack in self.every if id(stack) in kept]

    def plain(self, stack: Stack) -> Stack | None:
        """The stack of the same parameters and tokens without a loop."""
        found = (
            other
            for other in self._best.values()
            if other.is_plain
            and (other.series, other.shape, other.tokens)
            == (stack.series, stack.shape, stack.tokens)
        )
        return min(found, key=lambda other: other.loop is not None, default=None)

    def equal_flops(self, stack: Stack) -> Stack | None:
        """The stack without a loop that has as many blocks and, within a step, as many FLOPs."""
        missing: dict[float, Stack] = {}  # by the steps that would spend what it has not spent
        for other in self._best.values():
            same = (other.series, other.shape) == (stack.series, _unrolled(stack))
            if other.is_plain and same and stack.flops and other.flops:
                step = other.flops / other.line.records[0]["steps"]
                missing[abs(stack.flops - other.flops) / step] = other
        nearest = min(missing, default=1.0)
        return missing[nearest] if nearest < 1.0 else None

    def untied(self, stack: Stack) -> Stack | None:
        """The stack whose visits have weights of their own, trained on as many tokens."""
        if isinstance(stack.loop, CoreLoop):
            key = (stack.series, stack.shape, untied_of(stack.loop), stack.tokens)
            return self._best.get(key)
        return self._best.get((stack.series, _unrolled(stack), None, stack.tokens))


def _key(stack: Stack) -> Key:
    return stack.series, stack.shape, stack.loop, stack.tokens


def _by_loss(stack: Stack) -> tuple[bool, float]:
    return not stack.line.complete, stack.loss.mean if stack.loss else float("inf")


def _unrolled(stack: Stack) -> ShapeKey:
    return ShapeKey(stack.executed, stack.shape.d_model)


def difference(stack: Stack, other: Stack | None, missing: str) -> Spread | Blank:
    """Loss minus that of `other`, paired by seed; `missing` says what is not there without it."""
    if not stack.line.done:
        return Blank(NO_RESULT)
    if other is None:
        return Blank(missing)
    base = other.line.by_seed
    if not base:
        return Blank(f"{other.label}: {status_text(other.line.records)}")
    paired = [loss - base[seed] for seed, loss in stack.line.by_seed.items() if seed in base]
    return spread(paired) or Blank(NO_SHARED_SEED)


Differences = Mapping[str, Spread | Blank]


def differences(stack: Stack, stacks: Stacks) -> Differences:
    """Loss minus that of each control: `plain`, `equal_flops` and `untied`."""
    if stack.is_plain:
        return dict.fromkeys(("plain", "equal_flops", "untied"), Blank(IS_PLAIN))
    found = {"plain": difference(stack, stacks.plain(stack), NO_PLAIN)}
    if not stack.is_tied or stack.executed == stack.shape.layers:
        return found | dict.fromkeys(("equal_flops", "untied"), Blank(NOT_LOOPED))
    found["equal_flops"] = difference(stack, stacks.equal_flops(stack), NO_EQUAL_FLOPS)
    return found | {"untied": difference(stack, stacks.untied(stack), NO_UNTIED)}
