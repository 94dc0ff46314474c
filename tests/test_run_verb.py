"""`depthbench run` with an executor and a tracker, as typed."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from depthbench.cli import app
from depthbench.folder import find_cells, read_metrics
from tests.kit import write_rows
from tests.tuning.test_run import suite


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite of one cell that is not tuned."""
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    document = suite(write_rows(tmp_path, "red green blue wide deep narrow")).model_dump()
    document |= {"tune": None, "learning_rate": {"default": 1e-3}}
    for name in ("hub", "also", "loops"):
        del document[name]
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(_plain(document)))
    return path


def _plain(value: object) -> object:
    """Tuples as YAML's lists."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def run(path: Path, *options: str) -> Result:
    out = str(path.parent / "runs")
    return CliRunner().invoke(app, ["run", str(path), "--out", out, *options])


def test_a_tracker_is_told_what_is_on_disk(small) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    settings = ("--executor", "local", "--executor-set", "jobs=1")
    result = run(small, "--track", "tensorboard", *settings)
    assert result.exit_code == 0, result.output
    root = small.parent / "runs" / "unit"
    (cell,) = find_cells(root)
    told = events.EventAccumulator(str(root / "tensorboard" / cell.path.name)).Reload()
    losses = {r["step"]: r["loss"] for r in read_metrics(cell.metrics_path) if "loss" in r}
    found = {event.step: event.value for event in told.Scalars("train/loss")}
    assert found == pytest.approx(losses, rel=1e-6)
    assert len(found) == 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--executor", "slrum"), "unknown executor 'slrum': did you mean 'slurm'"),
        (("--executor-set", "job=1"), "unknown key 'job': did you mean 'jobs'"),
        (("--executor-set", "jobs"), "--executor-set jobs: write it as path=value"),
        (("--executor-set", "jobs=0"), "jobs = 0"),
        (("--executor", "slurm", "--jobs", "2"), "--jobs 2 is of the local executor"),
    ],
)
def test_a_wrong_executor_is_refused_before_anything_is_written(small, options, said) -> None:
    result = run(small, *options)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")
    assert not (small.parent / "runs").exists()
