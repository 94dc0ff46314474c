"""Event files, read back by TensorBoard, hold the metrics: each once, whatever happened."""

from pathlib import Path

import numpy as np
import pytest

from depthbench.folder import CellFolder, read_metrics, truncate_metrics
from depthbench.tracking.follow import OpenRun, _Follower, _opener, follow
from tests.tracking.kit import append, cell, finish, record, scalars, train

pytest.importorskip("tensorboard")


def events(folder: CellFolder) -> list[tuple[str, int, float]]:
    return list(scalars(folder.path.parent / "tensorboard" / folder.path.name))


def training(folder: CellFolder) -> list[tuple[str, int, float]]:
    """Every number of the training records, as fp32, in the order of `scalars`."""
    names = ("elapsed", "loss", "tokens")
    records = read_metrics(folder.metrics_path)
    return [(f"train/{n}", r["step"], float(np.float32(r[n]))) for n in names for r in records]


def once(root: Path) -> tuple[int, int]:
    return follow(root, "tensorboard")


@pytest.fixture
def opened() -> OpenRun:
    return _opener("tensorboard")


def test_a_finished_cell_is_read_back_number_by_number(tmp_path) -> None:
    folder = cell(tmp_path)
    train(folder, 1, 2, 3, loss=0.1)
    append(folder.metrics_path, {"step": 3, "tokens": 96, "evaluation": {"loss": 0.3}})
    finish(folder, 3)
    assert once(tmp_path) == (1, 0)
    found = events(folder)
    assert [event for event in found if event[0].startswith("train")] == [
        *(("train/elapsed", step, step / 2) for step in (1, 2, 3)),
        *(("train/loss", step, float(np.float32(0.1 / step))) for step in (1, 2, 3)),
        *(("train/tokens", step, 32 * step) for step in (1, 2, 3)),
    ]
    assert [event for event in found if not event[0].startswith("train")] == [
        ("evaluation/loss", 3, float(np.float32(0.3))),
        ("result/ledger/parameters", 3, 12),
        ("result/loss", 3, float(np.float32(0.7))),
        ("result/loss_by_source/a b", 3, 2),
    ]


def test_a_growing_file_is_followed(tmp_path, opened) -> None:
    folder = cell(tmp_path)
    follower = _Follower(tmp_path, tmp_path / "tensorboard", opened)
    for steps in ((1, 2), (), (3,), (4, 5)):
        train(folder, *steps)
        follower.look()
        assert events(folder) == training(folder)
    assert follower.failed == {}


def test_steps_that_come_again_stand_once_and_as_they_are_now(tmp_path, opened) -> None:
    folder = cell(tmp_path)
    append(folder.layers_path, *({"step": step, "rms": [step]} for step in (2, 4)))
    train(folder, 1, 2, 3, 4)
    follower = _Follower(tmp_path, tmp_path / "tensorboard", opened)
    follower.look()
    truncate_metrics(folder.metrics_path, 2)  # as a resumed run does, from a checkpoint at 2
    train(folder, 3, loss=9.0)
    follower.look()
    layers = [("layers/rms/0", 2, 2.0), ("layers/rms/0", 4, 4.0)]
    assert events(folder) == [*layers, *training(folder)]
    truncate_metrics(folder.layers_path, 3)
    train(folder, 4, 5, loss=9.0)
    follower.look()
    assert [event for event in events(folder) if event[0] == "train/loss"] == [
        ("train/loss", 1, 1.0),
        ("train/loss", 2, 0.5),
        ("train/loss", 3, 3.0),
        ("train/loss", 4, 2.25),
        ("train/loss", 5, float(np.float32(9 / 5))),
    ]
    assert events(folder) == [layers[0], *training(folder)]


def test_another_follower_goes_on_and_writes_nothing_twice(tmp_path) -> None:
    folder = cell(tmp_path)
    place = tmp_path / "tensorboard" / folder.path.name
    train(folder, 1, 2)
    once(tmp_path)
    train(folder, 3)
    once(tmp_path)
    assert events(folder) == training(folder)
    before = {path.name: path.stat().st_size for path in place.iterdir()}
    once(tmp_path)
    assert {path.name: path.stat().st_size for path in place.iterdir()} == before
    sizes = [size for name, size in before.items() if "tfevents" in name]
    assert len(sizes) == 2
    assert min(sizes) < 0.8 * max(sizes)  # the second holds one step, the first two


def test_what_a_dying_follower_wrote_and_did_not_note_stands_once(tmp_path) -> None:
    folder = cell(tmp_path)
    train(folder, 1, 2)
    once(tmp_path)
    note = tmp_path / "tensorboard" / folder.path.name / "sent.json"
    text = note.read_text()
    train(folder, 3, 4)
    once(tmp_path)
    for state in (text, "{", "[1]"):
        note.write_text(state)
        once(tmp_path)
        assert events(folder) == training(folder)


def test_layers_that_are_read_late_are_not_lost(tmp_path, opened) -> None:
    folder = cell(tmp_path)
    follower = _Follower(tmp_path, tmp_path / "tensorboard", opened)
    train(folder, 1, 2, 3)
    follower.look()
    append(folder.layers_path, {"step": 2, "rms": [7.0]})
    follower.look()
    assert events(folder) == [("layers/rms/0", 2, 7.0), *training(folder)]


def test_times_are_those_of_the_training(tmp_path) -> None:
    folder = cell(tmp_path)
    train(folder, 2, 8)
    once(tmp_path)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(tmp_path / "tensorboard" / folder.path.name))
    found.Reload()
    first, last = found.Scalars("train/loss")
    assert last.wall_time - first.wall_time == pytest.approx(3.0, abs=1e-5)


def test_a_damaged_cell_costs_no_other_one_anything(tmp_path, capsys) -> None:
    bad, good = cell(tmp_path, seed=1), cell(tmp_path, seed=2)
    bad.metrics_path.write_bytes(b"{}\n{}\n")
    train(good, 1)
    assert once(tmp_path) == (2, 1)
    assert events(good) == training(good)
    assert f"{bad.path} could not be told" in capsys.readouterr().out
    bad.metrics_path.unlink()
    append(bad.metrics_path, record(1))
    assert once(tmp_path) == (2, 0)
    assert events(bad) == training(bad)
