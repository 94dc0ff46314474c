"""A tracker beside a run: whatever it does, the run is the same and ends in time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import depthbench
from depthbench import cell as cell_command
from depthbench.config import CellConfig
from depthbench.errors import InputError
from depthbench.folder import CellFolder, read_json, read_metrics
from depthbench.tracking.beside import beside, log_path
from tests.kit import cell_document, tiny_corpus
from tests.matrix.kit import alive, wait_until
from tests.tracking.kit import cell, fake_wandb, told, train

ROOT = str(Path(depthbench.__file__).parents[1])


@pytest.fixture(scope="module")
def document(tmp_path_factory) -> Iterator[dict[str, Any]]:
    """A cell on a corpus that is prepared."""
    corpus = tiny_corpus(tmp_path_factory.mktemp("text"), "whoever looks on changes nothing of it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
        yield cell_document(corpus, steps=20)


@pytest.fixture
def fake(tmp_path, monkeypatch) -> Path:
    folder = fake_wandb(tmp_path)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")
    return folder


@pytest.fixture
def said() -> Console:
    return Console(file=StringIO(), width=400)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those that the cell command installs are taken back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def lines(said: Console) -> list[str]:
    return said.file.getvalue().splitlines()  # type: ignore[attr-defined]


def trained(out: Path, document: dict[str, Any]) -> tuple[list[tuple[int, float]], float]:
    """Losses of the training records and of the end, of a cell that is run here."""
    config = CellConfig.model_validate(document)
    folder = CellFolder(out / config.folder_name())
    folder.create(config)
    assert cell_command.main(folder.path) == 0
    records = read_metrics(folder.metrics_path)
    losses = [(record["step"], record["loss"]) for record in records if "loss" in record]
    return losses, read_json(folder.result_path)["measures"]["loss"]


@pytest.mark.parametrize("act", ["hangs in init", "hangs in log", "raises in init"])
def test_no_loss_knows_of_a_tracker_that_hangs_or_raises(
    act, document, fake, said, tmp_path
) -> None:
    plain = trained(tmp_path / "plain", document)
    (fake / "act").write_text(act)
    out = tmp_path / "runs"
    with beside(out, "wandb", said, grace=2.0):
        tracked = trained(out, document)
        wait_until(lambda: bool(told(fake, act.split()[-1])))
        began = time.monotonic()
    assert time.monotonic() - began < 15
    assert tracked == plain
    assert len(tracked[0]) == 20
    [line] = lines(said)
    ended = "did not end within 2 s" if "hangs" in act else "ended with exit code 1"
    assert line.startswith(f"wandb was not told everything, its process {ended}")
    assert f"see {log_path(out, 'wandb')}" in line
    assert f"depthbench track {out} --to wandb" in line
    assert ("no network today" in log_path(out, "wandb").read_text()) == ("raises" in act)
    assert not alive(told(fake)[0]["pid"])


def test_the_rest_is_told_after_the_run_and_nothing_is_said(fake, said, tmp_path) -> None:
    """Even if the run is over before the follower is ready."""
    out = tmp_path / "runs"
    folder = cell(out)
    with beside(out, "wandb", said, grace=60.0):
        train(folder, 1, 2)
    assert [line["values"]["step"] for line in told(fake, "log")] == [1, 2]
    assert lines(said) == []
    assert "1 of 1 cells were told to wandb" in log_path(out, "wandb").read_text()


def test_a_run_that_is_refused_leaves_nothing_behind(fake, said, tmp_path) -> None:
    out = tmp_path / "runs"
    with pytest.raises(InputError, match="no such suite"), beside(out, "wandb", said, grace=60.0):
        raise InputError("no such suite")
    assert not out.exists()
    assert lines(said) == []


def test_a_tracker_that_is_missing_is_refused_before_anything(said, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("depthbench.tracking.kinds.find_spec", lambda name: None)
    refused = pytest.raises(InputError, match=r"pip install 'depthbench\[tensorboard\]'")
    with refused, beside(tmp_path / "runs", "tensorboard", said):
        raise AssertionError
    with beside(tmp_path / "runs", None, said):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the follower asks between passes")
def test_a_hanging_follower_does_not_outlive_a_killed_parent(fake, tmp_path) -> None:
    (fake / "act").write_text("hangs in init")
    out = tmp_path / "runs"
    train(cell(out), 1)
    script = (
        "import sys, time; from pathlib import Path\n"
        "from depthbench.tracking.beside import beside\n"
        "with beside(Path(sys.argv[1]), 'wandb'): time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(out)])
    try:
        wait_until(lambda: bool(told(fake)), seconds=60)
    finally:
        parent.kill()
        parent.wait()
    pid = told(fake)[0]["pid"]
    assert pid != parent.pid
    wait_until(lambda: not alive(pid), seconds=10)
