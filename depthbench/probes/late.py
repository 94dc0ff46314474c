"""Share of pairs of late blocks with a score above a threshold."""

from collections.abc import Sequence
from math import ceil


def late_fraction(score: Sequence[Sequence[float | None]], threshold: float) -> float | None:
    """Of the pairs i < j in the last three quarters, the share with `score[i][j]` above.

    None if there is no such pair.
    """
    num = len(score)
    first = ceil(num / 4)
    pairs = [score[i][j] for i in range(first, num) for j in range(i + 1, num)]
    known = [value for value in pairs if value is not None]
    return sum(value > threshold for value in known) / len(known) if known else None
