"""Fixed parameters at growing executed depth: the loops through which all gradients pass."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from depthbench.report.lines import ShapeKey
from depthbench.report.loops import WHOLE, layout_words
from depthbench.report.series import Series
from depthbench.report.stacks import Stack, Stacks
from depthbench.report.values import count


@dataclass(frozen=True)
class Tower:
    """One shape and layout at one budget, with all its loops B = T by design and executed blocks.

    `plain`: by design the stack of the same parameters without a loop.
    """

    shape: ShapeKey
    layout: str
    tokens: int
    lines: Mapping[Series, Mapping[int, Stack]]
    plain: Mapping[Series, Stack]

    @property
    def title(self) -> str:
        """What is fixed."""
        return f"{self.shape.label}, {self.layout}"

    @property
    def words(self) -> str:
        """That and the budget."""
        return f"{self.title}, {count(self.tokens)} tokens"

    @property
    def depths(self) -> list[int]:
        """Every number of executed blocks."""
        return sorted({executed for by in self.lines.values() for executed in by})


def towers(stacks: Stacks, order: Sequence[Series]) -> list[Tower]:
    """One for each shape and layout that ran at several depths, at the budget most runs share."""
    found: dict[tuple[ShapeKey, str, int], list[Stack]] = defaultdict(list)
    for stack in stacks.best:
        if stack.loop and stack.is_tied and stack.has_all_gradients:
            found[stack.shape, layout_words(stack.loop), stack.tokens].append(stack)
    budgets = Counter(stack.tokens for stack in stacks.best)
    chosen: dict[tuple[ShapeKey, str], int] = {}
    for shape, layout, tokens in found:
        known = chosen.get((shape, layout), tokens)
        chosen[shape, layout] = max(known, tokens, key=lambda t: (budgets[t], t))
    built = [
        _tower((*key, tokens), found[*key, tokens], stacks, order)
        for key, tokens in sorted(chosen.items())
    ]
    return [tower for tower in built if len(tower.depths) > 1]


def _tower(
    key: tuple[ShapeKey, str, int],
    members: Sequence[Stack],
    stacks: Stacks,
    order: Sequence[Series],
) -> Tower:
    shape, layout, _ = key
    lines: dict[Series, dict[int, Stack]] = {}
    plain: dict[Series, Stack] = {}
    for series in order:
        own = {stack.executed: stack for stack in members if stack.series == series}
        reference = stacks.plain(next(iter(own.values()))) if own else None
        if reference:
            plain[series] = reference
            if layout == WHOLE:  # its first round is that stack
                own[shape.layers] = reference
        if own:
            lines[series] = dict(sorted(own.items()))
    return Tower(*key, lines, plain)
