"""Share of pairs of late blocks with a score above a threshold."""

from collections.abc import Sequence
from math import ceil, isnan


def late_fraction(score: Sequence[Sequence[float | None]], threshold: float) -> float | None:
    """Of the pairs i < j in the last three quarters, the share with `score[i][j]` above.

    None if there is no such pair, or one whose score is not a number.
    """
    num = len(score)
    first = ceil(num / 4)
    pairs = [score[i][j] for i in range(first, num) for j in range(i + 1, num)]
    known = [value for value in pairs if value is not None]
    if not known or any(map(isnan, known)):
        return None
    return sum(value > threshold for value in known) / len(known)
