from collections.abc import Iterator
from pathlib import Path

import pytest

import residuals
from residuals import registry


@pytest.fixture(autouse=True)
def _own_registry_and_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers or records is gone after it."""
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    residuals.names()
    before = dict(registry._designs)
    yield
    registry._designs.clear()
    registry._designs.update(before)
