"""The fit of a scaling law with all its starts: 180 runs, 500 starts, one thread."""

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from depthbench.scaling import fit
from tests.scaling.kit import law_of, runs_of

SECONDS = 60


@pytest.mark.parametrize("noise", [0.0, 0.002])
def test_500_starts_in_less_than_a_minute(benchmark: BenchmarkFixture, noise: float) -> None:
    law = law_of()
    runs = runs_of(law, noise=noise)
    how = {"num_starts": 500, "num_resamples": 0}
    found = benchmark.pedantic(fit, (runs,), how, rounds=1, iterations=1)
    assert benchmark.stats.stats.max < SECONDS
    off = {name: abs(found.law.constants[name] / law.constants[name] - 1) for name in law.constants}
    if noise == 0.0:
        assert max(off.values()) < 1e-3
    else:
        assert max(off["p"], off["q"]) < 0.2
        assert off["c"] < 0.07
    assert found.num_agreeing > 450
    benchmark.extra_info["agreeing starts"] = found.num_agreeing


def test_tolerances_over_five_seeds_with_all_starts(benchmark: BenchmarkFixture) -> None:
    law = law_of()

    def errors() -> np.ndarray:
        rows = []
        for seed in range(5):
            runs = runs_of(law, noise=0.002, seed=seed)
            found = fit(runs, num_starts=500, num_resamples=0, seed=seed).law
            off = [abs(found.g[name] / law.g[name] - 1) for name in "pqc"]
            sizes = [runs.N_once + each.g_at(runs.T, runs.B) * runs.N_rec for each in (found, law)]
            rows.append([*off, np.abs(sizes[0] / sizes[1] - 1).max()])
        return np.array(rows)

    found = benchmark.pedantic(errors, rounds=1, iterations=1)
    assert np.all(np.median(found, axis=0) <= [0.10, 0.10, 0.10, 0.02])
    assert np.all(np.max(found, axis=0) <= [0.20, 0.20, 0.07, 0.04])
