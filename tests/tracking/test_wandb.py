"""W&B is told everything once; a fake stands in for it, and the real one keeps its runs offline."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from depthbench.folder import truncate_metrics
from depthbench.tracking.follow import _Follower, _opener, follow
from tests.tracking.kit import append, cell, fake_wandb, finish, told, train


@pytest.fixture
def fake(tmp_path, monkeypatch) -> Path:
    """The fake is what `import wandb` finds."""
    folder = fake_wandb(tmp_path)
    monkeypatch.syspath_prepend(str(folder))
    for name in ("wandb", "depthbench.tracking.wandb"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield folder
    for name in ("wandb", "depthbench.tracking.wandb"):
        sys.modules.pop(name, None)


def losses(fake: Path) -> list[tuple[int, float]]:
    logged = [line["values"] for line in told(fake, "log")]
    return [(values["step"], values["train/loss"]) for values in logged if "train/loss" in values]


def test_a_cell_is_a_run_under_its_digest(fake, tmp_path) -> None:
    root = tmp_path / "runs"
    folder = cell(root)
    train(folder, 1, 2)
    append(folder.metrics_path, {"step": 2, "tokens": 64, "evaluation": {"loss": 0.3}})
    finish(folder, 2)
    assert follow(root, "wandb") == (1, 0)
    [start] = told(fake, "init")
    config = folder.config()
    assert (start["id"], start["name"]) == (config.digest(), config.folder_name())
    assert (start["group"], start["resume"]) == ("unit", None)
    assert start["config"]["shape"]["d_model"] == config.shape.d_model
    assert "mode" not in start  # WANDB_MODE decides
    assert Path(start["dir"]).parent == root / "wandb"
    assert losses(fake) == [(1, 1.0), (2, 0.5)]
    assert told(fake, "log")[-1]["values"] == {"step": 2, "evaluation/loss": 0.3}
    [summary] = told(fake, "summary")
    assert summary["values"]["result/loss"] == 0.7
    assert [line["exit_code"] for line in told(fake, "finish")] == [0]
    assert follow(root, "wandb") == (1, 0)
    assert len(told(fake, "init")) == 1


def test_steps_that_come_again_are_not_told_again(fake, tmp_path) -> None:
    root = tmp_path / "runs"
    folder = cell(root)
    train(folder, 1, 2, 3)
    follow(root, "wandb")
    truncate_metrics(folder.metrics_path, 1)
    train(folder, 2)
    follow(root, "wandb")
    train(folder, 3, 4)
    finish(folder, 4, status="diverged")
    follow(root, "wandb")
    assert [step for step, _ in losses(fake)] == [1, 2, 3, 4]
    assert [line["resume"] for line in told(fake, "init")] == [None, "allow"]
    assert [line["exit_code"] for line in told(fake, "finish")] == [1, 1]


def test_what_could_not_be_told_is_told_later_and_nothing_twice(fake, tmp_path, capsys) -> None:
    root = tmp_path / "runs"
    first, second = cell(root, seed=1), cell(root, seed=2)
    train(first, 1, 2)
    train(second, 1)
    follower = _Follower(root, root / "wandb", _opener("wandb"))
    (fake / "act").write_text("raises in log")
    follower.look()
    assert set(follower.failed) == {first.path, second.path}
    assert "no network today" in capsys.readouterr().out
    (fake / "act").write_text("records")
    before = len(losses(fake))
    follower.look()  # too soon after a failure
    assert len(losses(fake)) == before
    follower.look(last=True)
    assert follower.failed == {}
    assert sorted(losses(fake)[before:]) == [(1, 1.0), (1, 1.0), (2, 0.5)]


@pytest.mark.skipif(not importlib.util.find_spec("wandb"), reason="wandb is not installed")
def test_the_real_one_keeps_its_run_offline(tmp_path) -> None:
    root = tmp_path / "runs"
    folder = cell(root)
    train(folder, 1, 2)
    script = (
        "import sys; from pathlib import Path; from depthbench.tracking.follow import follow\n"
        "sys.exit(follow(Path(sys.argv[1]), 'wandb') != (1, 0))"
    )
    home = {"HOME": str(tmp_path), "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    subprocess.run([sys.executable, "-c", script, str(root)], env=os.environ | home, check=True)
    digest = folder.config().digest()
    [run] = root.glob(f"wandb/{folder.path.name}/wandb/offline-run-*-{digest}/run-{digest}.wandb")
    content = run.read_bytes()
    assert content.count(b"train/loss") >= 2
    assert folder.path.name.encode() in content
