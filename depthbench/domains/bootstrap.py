"""Intervals of ratios of sums, by resampling items."""

import hashlib

import numpy as np
from numpy.typing import NDArray

NUM_RESAMPLES = 10_000
_DRAWS_AT_ONCE = 2**18


def resampled_ratios(
    name: str, numerators: NDArray[np.float64], denominators: NDArray[np.float64]
) -> NDArray[np.float64]:
    """`Σ numerator / Σ denominator` over items drawn with replacement, [NUM_RESAMPLES].

    The generator is seeded by `name`, so that a set always gets the same draws and two sets never
    share theirs.
    """
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    generator, num_items = np.random.default_rng(seed), len(numerators)
    ratios = np.empty(NUM_RESAMPLES)
    step = max(1, _DRAWS_AT_ONCE // num_items)
    for start in range(0, NUM_RESAMPLES, step):
        num = min(step, NUM_RESAMPLES - start)
        drawn = generator.integers(num_items, size=(num, num_items), dtype=np.int32)
        ratios[start : start + num] = numerators[drawn].sum(1) / denominators[drawn].sum(1)
    return ratios


def interval(replicates: NDArray[np.float64]) -> list[float]:
    """The central 95 %."""
    low, high = np.quantile(replicates, (0.025, 0.975))
    return [float(low), float(high)]
