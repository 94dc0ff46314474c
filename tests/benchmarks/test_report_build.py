"""Time to build the report of a matrix as large as the published one: 5 s at most."""

import time
from pathlib import Path

from pytest_benchmark.fixture import BenchmarkFixture

from depthbench import report
from tests.report.large import write_large


def test_report_of_150_cells(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    write_large(tmp_path / "runs")
    runs, out = [tmp_path / "runs"], tmp_path / "out"
    benchmark.pedantic(lambda: report.build(runs, out), rounds=3, warmup_rounds=1, iterations=1)


def test_it_takes_less_than_five_seconds_of_one_core(tmp_path: Path) -> None:
    """Processor time, which a busy machine lengthens less than the clock."""
    write_large(tmp_path / "runs")
    taken = []
    for _ in range(3):
        start = time.process_time()
        report.build([tmp_path / "runs"], tmp_path / "out")
        taken.append(time.process_time() - start)
    assert min(taken) < 5.0
