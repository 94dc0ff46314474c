"""`depthbench track`: what it says, and its exit codes."""

import fcntl
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from depthbench.console import Reporting
from depthbench.track_verbs import track
from tests.tracking.kit import cell, scalars, train

pytest.importorskip("tensorboard")
app = typer.Typer(cls=Reporting, pretty_exceptions_enable=False)
app.command()(track)


@app.command()
def _other() -> None:
    """With one verb alone, typer takes its name for an argument."""


def call(folder: Path) -> Any:
    return CliRunner().invoke(app, ["track", str(folder), "--to", "tensorboard"])


def test_cells_of_all_depths_are_told(tmp_path) -> None:
    deep, root = cell(tmp_path / "runs" / "tuning", seed=1), tmp_path / "runs"
    flat = cell(root, seed=2)
    train(deep, 1)
    train(flat, 1)
    result = call(root)
    assert result.exit_code == 0, result.output
    assert "2 of 2 cells were told to tensorboard" in result.output
    for place in (Path("tuning", deep.path.name), Path(flat.path.name)):
        assert ("train/loss", 1, 1.0) in list(scalars(root / "tensorboard" / place))
    assert call(root).exit_code == 0


def test_one_cell_may_be_named(tmp_path) -> None:
    folder = cell(tmp_path)
    train(folder, 1)
    assert call(folder.path).exit_code == 0
    assert list(scalars(folder.path / "tensorboard" / folder.path.name))


def test_what_cannot_be_followed(tmp_path) -> None:
    result = call(tmp_path / "none")
    assert result.exit_code == 2
    assert "is not a folder" in result.output
    assert not (tmp_path / "none").exists()
    result = call(tmp_path)
    assert result.exit_code == 2
    assert "no cell under" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_an_exit_code(tmp_path) -> None:
    cell(tmp_path).metrics_path.write_bytes(b"{}\n{}\n")
    result = call(tmp_path)
    assert result.exit_code == 1
    assert "0 of 1 cells" in result.output


def test_two_followers_of_one_folder(tmp_path) -> None:
    cell(tmp_path)
    call(tmp_path)
    with open(tmp_path / "tensorboard" / "lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = call(tmp_path)
    assert result.exit_code == 2
    assert "by another process already" in result.output
