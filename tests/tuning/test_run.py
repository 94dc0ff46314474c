"""A suite that tunes, run as the command line does, on cells that really train."""

import json
from pathlib import Path
from typing import Any

import pytest

from depthbench import matrix
from depthbench.errors import DepthbenchError
from depthbench.inputs import validated
from depthbench.run import run_suite
from depthbench.store import cell_folders, records
from depthbench.suite import Suite
from tests.kit import write_rows


def suite(text: Path) -> Suite:
    document: dict[str, Any] = {
        "name": "unit",
        "designs": ["pre-ln"],
        "ladder": {
            "match_on": None,
            "vocab_size": 280,
            "norm_eps": 1e-10,
            "shapes": [{"layers": 1, "d_model": 8, "ffn": 16, "heads": 2}],
        },
        "corpus": str(text),
        "local": {"vocab_size": 280, "validation_share": 0.2},
        "sequence_length": 8,
        "batch_size": 2,
        "budget": {"tokens": 320},
        # From rates that barely move a weight to one that throws it about.
        "tune": {"rates": [1e-4, 2e-4, 4e-4], "layers": [1], "seeds": [7], "extensions": 1},
        "seeds": [1],
        "evaluation": {"tokens": 64},
    }
    return validated(Suite, document, "unit")


def test_without_its_tuning_cells_nothing_is_scored(tmp_path, monkeypatch) -> None:
    """One cell for tuning that cannot end is a reason to stop, with what to do about it."""
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    given = suite(write_rows(tmp_path, "red green blue wide deep narrow"))
    asked: list[Path] = []

    def one_left(cells: Any, out: Path, *_: Any) -> int:
        asked.append(out)
        return 1

    monkeypatch.setattr(matrix, "run", one_left)
    with pytest.raises(
        DepthbenchError, match=r"1 of 3 cells for tuning under .* run the suite again"
    ):
        run_suite(given, tmp_path / "unit")
    assert asked == [tmp_path / "unit" / "tuning"]


def test_a_suite_tunes_then_scores_and_typed_again_does_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    given, out = suite(write_rows(tmp_path, "red green blue wide deep narrow")), tmp_path / "unit"
    assert run_suite(given, out, jobs=2) == 0
    rows = records(cell_folders(out))
    tried = {row["learning_rate"]: row for row in rows if row["role"] == "tuning"}
    # In twenty steps such rates only get better with size: one extension, and the edge is marked.
    assert sorted(tried) == [1e-4, 2e-4, 4e-4, 8e-4]
    assert {row["seed"] for row in tried.values()} == {7}
    (scored,) = (row for row in rows if row["role"] == "scored")
    best = min(tried, key=lambda rate: tried[rate]["loss"])
    assert (scored["learning_rate"], scored["seed"]) == (best, 1) == (8e-4, 1)
    assert scored["rate_at_edge"] is True
    assert json.loads(scored["tuned"])["rates"] == sorted(tried)
    written = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    assert len(written) == 5
    assert run_suite(given, out, jobs=2) == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("result.json")} == written
