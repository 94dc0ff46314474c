import io
from pathlib import Path

import pytest

import depthbench
from tests.matrix.kit import CELL, Bench

ROOT = str(Path(depthbench.__file__).parents[1])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    (tmp_path / "cell.py").write_text(CELL)
    return Bench(tmp_path, io.StringIO())
