"""Ranks from intervals.

The rank of a design is one plus the number of designs that are better than it beyond noise: whose
paired difference is below zero with a p-value that Holm's method accepts over the family of all
pairs. So the designs that nothing tells apart share a rank, and a rank never rests on a mean alone.
If all designs were one distribution, the chance of a split is at most 5 % for the means over the
ladder and 2 % for all shapes together, so 7 % for a whole matrix. The interval of one difference is
not widened so, and may exclude zero where two designs share a rank.

Ties do not chain: a design with noisy runs may be told apart from none, neither from the best nor
from the worst, and then has the first rank. Its last possible place says so.

A design with a diverged run at a shape is worse there than every design without one, whatever its
other seeds did; among such designs the smaller share of diverged runs is better, then the later
first divergence, and equal ones share a rank. A design without a run that ended, or of which no
difference to another has an interval, has no rank.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from depthbench.statistics.estimates import Estimate, with_holm
from depthbench.statistics.grid import Cell, Grid
from depthbench.statistics.noise import Noise
from depthbench.statistics.paired import difference

ALPHA_LADDER, ALPHA_SHAPES = 0.05, 0.02
_Fate = tuple[float, float]


@dataclass(frozen=True)
class Rank:
    """`rank` is one plus the number of `behind`, indices of better designs; None has a reason.

    `worst`: the number of ranked designs that are not worse, so the last place noise leaves open.
    """

    rank: int | None
    worst: int | None = None
    behind: tuple[int, ...] = ()
    reason: str | None = None


def ranks(noise: Noise, scopes: Sequence[Sequence[int]], alpha: float) -> list[list[Rank]]:
    """For every scope, a list of shapes that are averaged, the rank of every design.

    All pairs of all scopes are one family, in which the chance of a false difference is `alpha`.
    """
    grid = noise.grid
    fates = [[_fate(grid, d, scope) for d in range(len(grid.designs))] for scope in scopes]
    reasons = [
        [_why_unranked(grid, d, scope) for d in range(len(grid.designs))] for scope in scopes
    ]
    pairs = [
        (place, a, b)
        for place in range(len(scopes))
        for a, b in combinations(range(len(grid.designs)), 2)
        if not (reasons[place][a] or reasons[place][b])
    ]
    compared = [pair for pair in pairs if not (fates[pair[0]][pair[1]] or fates[pair[0]][pair[2]])]
    tested = with_holm([difference(noise, a, b, scopes[place]) for place, a, b in compared])
    found = dict(zip(compared, tested, strict=True))
    for (place, design), estimates in _by_design(found).items():
        if all(e.p is None for e in estimates):
            reasons[place][design] = estimates[0].reason
    behind: list[list[set[int]]] = [[set() for _ in grid.designs] for _ in scopes]
    for place, a, b in pairs:
        worse = _worse(a, b, fates[place][a], fates[place][b], found.get((place, a, b)), alpha)
        if worse is not None:
            behind[place][worse].add(a + b - worse)
    return [_placed(*found) for found in zip(reasons, behind, strict=True)]


def _placed(reasons: list[str | None], behind: list[set[int]]) -> list[Rank]:
    """The ranks in one scope."""
    num_ranked = reasons.count(None)
    return [
        Rank(None, reason=why)
        if why
        else Rank(
            rank=1 + len(better),
            worst=num_ranked - sum(design in others for others in behind),
            behind=tuple(sorted(better)),
        )
        for design, (why, better) in enumerate(zip(reasons, behind, strict=True))
    ]


def _by_design(
    found: Mapping[tuple[int, int, int], Estimate],
) -> dict[tuple[int, int], list[Estimate]]:
    """The comparisons of every design in every scope."""
    result: dict[tuple[int, int], list[Estimate]] = defaultdict(list)
    for (place, *pair), estimate in found.items():
        for design in pair:
            result[place, design].append(estimate)
    return result


def _worse(
    a: int, b: int, a_fate: _Fate | None, b_fate: _Fate | None, found: Estimate | None, alpha: float
) -> int | None:
    """Which of two designs is worse; None if nothing tells."""
    if a_fate != b_fate:
        nothing = (0.0, 0.0)
        return a if (a_fate or nothing) > (b_fate or nothing) else b
    if found is None or found.value is None or found.p_holm is None or found.p_holm > alpha:
        return None
    return a if found.value > 0 else b


def _fate(grid: Grid, design: int, shapes: Sequence[int]) -> _Fate | None:
    """Share of diverged runs and minus the first step at which one did; None without any."""
    cells = [grid.cell(design, shape) for shape in shapes]
    steps = [run.step or 0 for cell in cells for run in cell.diverged]
    if not steps:
        return None
    finished = sum(grid.num_finished(design, shape) for shape in shapes)
    return len(steps) / (len(steps) + finished), -float(min(steps))


def _why_unranked(grid: Grid, design: int, shapes: Sequence[int]) -> str | None:
    if not shapes:
        return "no shape that most designs have finished"
    for shape in shapes:
        cell: Cell = grid.cell(design, shape)
        if not grid.num_finished(design, shape) and not cell.diverged:
            return grid.why_empty(design, shape)
    return None
