"""A suite whose cells an executor starts."""

from pathlib import Path
from typing import Any

import pytest

from depthbench import matrix
from depthbench.errors import DepthbenchError
from depthbench.executors import Executor
from depthbench.executors.local import LocalExecutor
from depthbench.run import run_suite
from depthbench.suite import Suite
from tests.kit import write_rows
from tests.tuning.test_run import suite


def test_the_same_executor_starts_cells_for_tuning_and_scored_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    tuned = suite(write_rows(tmp_path, "red green blue wide deep narrow"))
    fixed = Suite.model_validate(
        tuned.model_dump() | {"tune": None, "learning_rate": {"default": 1e-3}}
    )
    started: list[tuple[Path, Executor | None]] = []

    def run(
        _cells: Any, out: Path, _jobs: Any, _plugins: Any, _console: Any, executor: Executor | None
    ) -> int:
        started.append((out, executor))
        return 1

    monkeypatch.setattr(matrix, "run", run)
    executor = LocalExecutor()
    with pytest.raises(DepthbenchError, match="cells for tuning"):
        run_suite(tuned, tmp_path / "unit", executor=executor)
    assert run_suite(fixed, tmp_path / "unit", executor=executor) == 1
    assert started == [(tmp_path / "unit/tuning", executor), (tmp_path / "unit", executor)]
