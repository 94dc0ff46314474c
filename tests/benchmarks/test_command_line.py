"""How long help takes: what everybody meets first."""

import subprocess
import sys
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

ROOT = Path(__file__).parents[2]


def test_help_is_there_within_a_second(benchmark: BenchmarkFixture) -> None:
    command = [sys.executable, "-m", "depthbench", "--help"]
    run = {"cwd": ROOT, "check": True, "stdout": subprocess.DEVNULL}
    benchmark.pedantic(subprocess.run, (command,), run, rounds=4, warmup_rounds=1)
    assert benchmark.stats.stats.min < 1.0
