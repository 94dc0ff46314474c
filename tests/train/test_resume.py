"""Stopping and going on, at whatever step and however it came to a stop, changes no bit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.folder import CellFolder, read_metrics
from depthbench.train import checkpoint, trainer
from depthbench.train.trainer import Outcome, train

STEPS = 40
CLOCK_FIELDS = ("tokens_per_second", "elapsed", "eta")
CELL = """
import sys
from pathlib import Path
from depthbench.cell import main
sys.exit(main(Path(sys.argv[1]), checkpoint_seconds=0))
"""


class LostError(Exception):
    """Stands for a process that is gone: nothing after it is written."""


def curve(folder: CellFolder) -> list[dict[str, Any]]:
    """All records without what a clock says."""
    records = read_metrics(folder.metrics_path)
    return [{k: v for k, v in record.items() if k not in CLOCK_FIELDS} for record in records]


def weights(folder: CellFolder) -> dict[str, torch.Tensor]:
    return load_file(folder.model_path)


def assert_same_run(one: CellFolder, other: CellFolder) -> None:
    assert curve(one) == curve(other)
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def stop_before(step: int) -> Callable[[], bool]:
    """Asked once before every step, it stops the run after `step` of them."""
    asked = iter(range(step + 1))
    return lambda: next(asked) == step


def steps_done(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by every step that is computed: going on is not starting again."""
    done: list[int] = []
    real = trainer.batch

    def batch(corpus: Corpus, seed: int, step: int, *sizes: int) -> Any:
        done.append(step)
        return real(corpus, seed, step, *sizes)

    monkeypatch.setattr(trainer, "batch", batch)
    return done


def crash_in_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The process is lost while step `number`, counted from 0, is computed."""
    real = trainer.batch

    def batch(corpus: Corpus, seed: int, step: int, *sizes: int) -> Any:
        if step == number:
            raise LostError
        return real(corpus, seed, step, *sizes)

    monkeypatch.setattr(trainer, "batch", batch)


def environment(cache: Path) -> dict[str, str]:
    root = str(Path(trainer.__file__).parents[2])
    return os.environ | {
        "DEPTHBENCH_CACHE": str(cache),
        "PYTHONPATH": root,
        "OMP_NUM_THREADS": "1",
    }


def start(folder: CellFolder, cache: Path) -> subprocess.Popen[bytes]:
    """The cell command in a process of its own, with a checkpoint after every step."""
    command = [sys.executable, "-c", CELL, str(folder.path)]
    return subprocess.Popen(command, env=environment(cache))


def wait_for_step(process: subprocess.Popen[bytes], folder: CellFolder, step: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done = folder.metrics_path.read_bytes() if folder.metrics_path.exists() else b""
        if f'"step": {step}'.encode() in done:
            return
        assert process.poll() is None, "the cell ended before it was stopped"
        time.sleep(0.001)
    raise AssertionError(f"step {step} was not reached")


@pytest.fixture(scope="module")
def config(make_config) -> CellConfig:
    return make_config(steps=STEPS)


@pytest.fixture(scope="module")
def whole(config: CellConfig, corpus: Corpus, tmp_path_factory) -> tuple[CellFolder, Outcome]:
    """The run without a stop."""
    folder = CellFolder(tmp_path_factory.mktemp("whole") / "cell")
    folder.create(config)
    return folder, train(config, folder, corpus, checkpoint_seconds=1e9)


def test_the_whole_run_is_evaluated_and_saved_at_its_last_step(whole, config) -> None:
    folder, outcome = whole
    records = curve(folder)
    losses = [r for r in records if "loss" in r]
    assert [r["step"] for r in losses] == list(range(1, STEPS + 1))
    assert [r["tokens"] for r in losses] == [64 * step for step in range(1, STEPS + 1)]
    assert [r["step"] for r in records if "evaluation" in r] == [10, 20, 30, 40]
    assert outcome.status == "done"
    assert outcome.step == STEPS
    assert outcome.measures is not None
    last = records[-1]["evaluation"]
    assert {key: outcome.measures[key] for key in last} == last
    tenth = [r["loss"] for r in losses[-STEPS // 10 :]]
    assert outcome.measures["train_loss"] == pytest.approx(sum(tenth) / len(tenth), rel=1e-12)
    assert weights(folder).keys()


def test_the_same_config_twice_is_the_same_run(whole, config, corpus, make_cell) -> None:
    again = make_cell(config)
    train(config, again, corpus, checkpoint_seconds=1e9)
    assert_same_run(whole[0], again)


def test_another_seed_is_another_run(whole, config, corpus, make_cell) -> None:
    other = make_cell(config.model_copy(update={"seed": config.seed + 1}))
    train(config.model_copy(update={"seed": config.seed + 1}), other, corpus)
    assert curve(other)[0]["loss"] != curve(whole[0])[0]["loss"]


@pytest.mark.parametrize("step", [0, 1, 2, 9, 10, 17, 39])
def test_a_run_stopped_after_any_step_goes_on_bitwise(
    step, whole, config, corpus, make_cell, monkeypatch
) -> None:
    folder = make_cell(config)
    done = steps_done(monkeypatch)
    said: list[str] = []
    stopped = train(config, folder, corpus, stop_before(step), 1e9, said.append)
    assert (stopped.status, stopped.step, stopped.measures) == ("interrupted", step, None)
    assert not folder.model_path.exists()
    outcome = train(config, folder, corpus, checkpoint_seconds=1e9, say=said.append)
    assert done == list(range(STEPS))
    assert said == []  # a sound checkpoint is not called damaged
    assert outcome.measures == whole[1].measures
    assert_same_run(whole[0], folder)


@pytest.mark.parametrize("design", ["hc", "moda", "full-attnres"])
def test_every_kind_of_parameter_goes_on_bitwise(design, make_config, corpus, make_cell) -> None:
    """Matrices, gains, static and dynamic routing, scales, queries, slot maps; micro-batches."""
    config = make_config(design, steps=8, micro_batch_size=2)
    whole, folder = make_cell(config, "whole"), make_cell(config)
    train(config, whole, corpus, checkpoint_seconds=1e9)
    train(config, folder, corpus, stop_before(3), 1e9)
    train(config, folder, corpus, checkpoint_seconds=1e9)
    assert_same_run(whole, folder)


def test_a_run_stopped_at_every_step_goes_on_bitwise(whole, config, corpus, make_cell) -> None:
    folder = make_cell(config)
    for step in range(1, STEPS):
        stopped = train(config, folder, corpus, stop_before(1), 1e9, lambda _: None)
        assert stopped.step == step
    outcome = train(config, folder, corpus, checkpoint_seconds=1e9)
    assert outcome.measures == whole[1].measures
    assert_same_run(whole[0], folder)


@pytest.mark.parametrize("num_records", [100, 8])
@pytest.mark.parametrize("crash", [3, 17, 20, 39])
def test_a_run_lost_between_checkpoints_goes_on_from_the_last_one(
    crash, num_records, config, corpus, make_cell, monkeypatch
) -> None:
    """What was recorded after the checkpoint is recorded once, with the same values."""
    monkeypatch.setattr(trainer, "RECORDS", num_records)  # 8: a mean over 5 steps a record
    straight = make_cell(config, "straight")
    expected = train(config, straight, corpus, checkpoint_seconds=1e9)
    save = checkpoint.save

    def every_seventh(folder, model, optimizer, progress, world) -> None:
        if progress.step % 7 == 0:
            save(folder, model, optimizer, progress, world)

    folder = make_cell(config)
    with monkeypatch.context() as lost:
        lost.setattr(checkpoint, "save", every_seventh)
        crash_in_step(lost, crash)
        with pytest.raises(LostError):
            train(config, folder, corpus, checkpoint_seconds=0)
    newest = max(folder.checkpoints_path.glob("step-*"), default=Path("step-0")).stem
    assert int(newest.removeprefix("step-")) == crash // 7 * 7
    done = steps_done(monkeypatch)
    outcome = train(config, folder, corpus, checkpoint_seconds=1e9)
    assert done == list(range(crash // 7 * 7, STEPS))
    assert outcome.measures == expected.measures
    assert_same_run(straight, folder)


def test_a_run_lost_after_its_last_step_only_repeats_what_was_not_written(
    whole, config, corpus, make_cell, monkeypatch
) -> None:
    folder = make_cell(config)

    def lost(path: Path, model: object, world: object) -> None:
        raise LostError

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "save_weights", lost)
        with pytest.raises(LostError):
            train(config, folder, corpus, checkpoint_seconds=0)
    outcome = train(config, folder, corpus, checkpoint_seconds=0)
    assert outcome.measures == whole[1].measures
    assert_same_run(whole[0], folder)


def test_a_torn_last_line_of_the_metrics_is_written_again(whole, config, corpus, make_cell) -> None:
    folder = make_cell(config)
    train(config, folder, corpus, stop_before(17), 1e9)
    with open(folder.metrics_path, "ab") as file:
        file.write(b'{"step": 18, "tokens": 11')
    train(config, folder, corpus, checkpoint_seconds=1e9)
    assert_same_run(whole[0], folder)


def test_seconds_of_all_parts_are_summed(config, corpus, make_cell) -> None:
    folder = make_cell(config)
    train(config, folder, corpus, stop_before(29), 1e9)
    first = read_metrics(folder.metrics_path)[-1]["elapsed"]
    train(config, folder, corpus, checkpoint_seconds=1e9)
    elapsed = [r["elapsed"] for r in read_metrics(folder.metrics_path) if "loss" in r]
    assert elapsed == sorted(elapsed)
    assert elapsed[28] == first
    assert elapsed[29] > first


def test_40_steps_equal_17_a_kill_and_the_rest(whole, config, cache, make_cell) -> None:
    folder = make_cell(config)
    process = start(folder, cache)
    wait_for_step(process, folder, 17)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    assert not folder.result_path.exists()
    assert 17 <= curve(folder)[-1]["step"] < STEPS
    assert start(folder, cache).wait(60) == 0
    result = folder.result()
    assert result is not None
    assert result["status"] == "done"
    assert result["measures"]["loss"] == whole[1].measures["loss"]
    assert result["measures"]["train_loss"] == whole[1].measures["train_loss"]
    assert_same_run(whole[0], folder)


def test_sigterm_saves_and_ends_with_75_and_the_cell_goes_on(
    whole, config, corpus, cache, make_cell
) -> None:
    folder = make_cell(config)
    process = start(folder, cache)
    wait_for_step(process, folder, 5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 75
    result = json.loads(folder.result_path.read_text())
    assert (result["status"], result["measures"], result["error"]) == ("interrupted", None, None)
    assert folder.status() == "interrupted"
    assert 5 <= result["step"] < STEPS
    saved = folder.checkpoints_path / f"step-{result['step']:09d}"
    assert saved.is_dir()
    outcome = train(config, folder, corpus, checkpoint_seconds=1e9)
    assert outcome.measures == whole[1].measures
    assert_same_run(whole[0], folder)
