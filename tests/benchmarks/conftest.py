"""Pairs every timed step with a baseline step in the same round, and prints the ratios at the end.

Machines are shared and their speed drifts: only the ratio of neighbours means something.
"""

import time
from collections.abc import Callable
from statistics import median

import pytest
import torch
from _pytest.terminal import TerminalReporter
from pytest_benchmark.fixture import BenchmarkFixture

ROUNDS = 9
_rows: list[tuple[str, float, str]] = []
Step = Callable[[], object]
Compare = Callable[..., None]


@pytest.fixture
def compare(benchmark: BenchmarkFixture) -> Compare:
    """`compare(name, step, baseline, target)`: time of `step` over that of `baseline`.

    `rounds` of each, after one that does not count; fewer where a single one takes long.
    """
    torch.set_num_threads(1)

    def run(name: str, step: Step, baseline: Step, target: str, rounds: int = ROUNDS) -> None:
        beside: list[float] = []

        def before_each_round() -> None:
            started = time.perf_counter()
            baseline()
            beside.append(time.perf_counter() - started)

        benchmark.pedantic(
            step, setup=before_each_round, rounds=rounds, warmup_rounds=1, iterations=1
        )
        ratio = median(benchmark.stats.stats.data) / median(beside[1:])
        benchmark.extra_info["ratio"] = ratio
        _rows.append((name, ratio, target))

    return run


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """The table that `make bench` is read for."""
    terminalreporter.section("time relative to the baseline of the same round (median)")
    for name, ratio, target in _rows:
        terminalreporter.write_line(f"{name:<52} {ratio:6.3f}   {target}")
