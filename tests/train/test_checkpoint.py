"""Checkpoints under damage, lack of space and crashes; weights files; what is never used."""

import ast
import errno
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from traceback import StackSummary
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

import depthbench
from depthbench.config import DesignRef, Optimizer, Shape
from depthbench.errors import CheckpointError
from depthbench.model.decoder import Decoder, build_decoder
from depthbench.train import checkpoint
from depthbench.train.checkpoint import PROGRESS, Progress, load_newest, save
from depthbench.train.optimizer import build_optimizer
from depthbench.train.trainer import train
from depthbench.train.weights import load_weights, save_weights

SHAPE = Shape(layers=1, d_model=4, ffn=4, heads=1)
Pair = tuple[Decoder, torch.optim.AdamW]


def pair(seed: int = 0, steps: int = 0) -> Pair:
    """A small model and its optimiser after `steps` updates."""
    model = build_decoder(SHAPE, 8, DesignRef(name="hc", version=1), 1e-6, seed)
    optimizer = build_optimizer(model, Optimizer(learning_rate=0.01))
    for step in range(steps):
        advance((model, optimizer), step)
    return model, optimizer


def advance(pair: Pair, step: int) -> None:
    model, optimizer = pair
    tokens = torch.arange(7)[None] + step
    optimizer.zero_grad()
    model.summed_nll(tokens[:, :-1] % 8, tokens[:, 1:] % 8).backward()
    optimizer.step()


def content(pair: Pair) -> Iterator[tuple[str, torch.Tensor]]:
    model, optimizer = pair
    for name, parameter in model.named_parameters():
        yield name, parameter.detach()
        for key, value in sorted(optimizer.state[parameter].items()):
            yield f"{key}/{name}", value


def assert_equal(one: Pair, other: Pair) -> None:
    left, right = dict(content(one)), dict(content(other))
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name
        assert tensor.dtype == right[name].dtype == torch.float32


def written(folder: Path, *steps: int) -> dict[int, Path]:
    """Checkpoints of the steps, from one run with one update a step."""
    run, paths = pair(), {}
    for step in range(1, max(steps) + 1):
        advance(run, step - 1)
        if step in steps:
            save(folder, *run, Progress(step=step, elapsed=float(step)))
            paths[step] = folder / f"step-{step:09d}"
    return paths


def tensors_of(checkpoint: Path) -> Path:
    """The one file in which a single rank keeps them."""
    (file,) = checkpoint.glob("*.safetensors")
    return file


def progress_of(checkpoint: Path) -> Path:
    return checkpoint / PROGRESS


def test_everything_comes_back_and_the_next_update_is_the_same(tmp_path) -> None:
    run = pair(steps=3)
    progress = Progress(3, 1.5, 1.25, [0.1, 1 / 3], [2.5, 1e-17])
    save(tmp_path, *run, progress)
    other = pair(seed=9, steps=1)
    assert load_newest(tmp_path, *other) == (progress, [])
    assert_equal(run, other)
    advance(run, 3)
    advance(other, 3)
    assert_equal(run, other)


def test_nothing_saved_is_step_0(tmp_path) -> None:
    run = pair()
    assert load_newest(tmp_path / "none", *run) == (Progress(), [])
    assert_equal(run, pair())


def test_a_checkpoint_before_the_first_step_is_whole(tmp_path) -> None:
    save(tmp_path, *pair(), Progress(elapsed=2.0))
    other = pair(seed=5)
    assert load_newest(tmp_path, *other) == (Progress(elapsed=2.0), [])
    assert_equal(pair(), other)


def test_the_newest_two_are_kept(tmp_path) -> None:
    paths = written(tmp_path, 1, 2, 9, 10, 11)
    assert sorted(tmp_path.iterdir()) == [paths[10], paths[11]]


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flipped(path: Path) -> None:
    flip(path, -7)


def flip(path: Path, position: int, bits: int = 0xFF) -> None:
    whole = bytearray(path.read_bytes())
    whole[position] ^= bits
    path.write_bytes(whole)


DAMAGES = [cut_short, emptied, zeroed, flipped, Path.unlink]


@pytest.mark.parametrize("of", [tensors_of, progress_of])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_is_named_and_the_one_before_used(damage, of, tmp_path) -> None:
    paths = written(tmp_path, 4, 6)
    damage(of(paths[6]))
    run = pair(seed=9, steps=2)
    progress, warnings = load_newest(tmp_path, *run)
    assert progress == Progress(step=4, elapsed=4.0)
    assert len(warnings) == 1
    assert str(paths[6]) in warnings[0]
    assert_equal(run, pair(steps=4))


@pytest.mark.parametrize("damage", DAMAGES)
def test_with_both_damaged_the_run_starts_again(damage, tmp_path) -> None:
    paths = written(tmp_path, 4, 6)
    for path in paths.values():
        damage(tensors_of(path))
    run = pair()
    progress, warnings = load_newest(tmp_path, *run)
    assert progress == Progress()
    assert [str(paths[n]) in w for n, w in zip((6, 4), warnings, strict=True)] == [True, True]
    assert_equal(run, pair())


def test_no_changed_byte_is_taken_for_sound(tmp_path) -> None:
    """Header, progress, hash and tensors: what loads is what was saved, or the one before."""
    paths = written(tmp_path, 1, 2)
    tensors, progress_file = tensors_of(paths[2]), progress_of(paths[2])
    whole, text = tensors.read_bytes(), progress_file.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    before, after = pair(steps=1), pair(steps=2)
    step_at = text.index(b'"step": 2') + len(b'"step": ')
    draw = random.Random(0)
    # Single bits anywhere, and the digit of the step turned into another digit.
    changes = [(tensors, draw.randrange(header), 1 << draw.randrange(8)) for _ in range(80)]
    changes += [(tensors, draw.randrange(len(whole)), 1 << draw.randrange(8)) for _ in range(50)]
    changes += [(progress_file, at, 1 << draw.randrange(8)) for at in range(0, len(text), 3)]
    changes += [(progress_file, step_at, 0b1), (progress_file, step_at, 0b1000)]
    for file, position, bits in changes:
        tensors.write_bytes(whole)
        progress_file.write_bytes(text)
        flip(file, position, bits)
        run = pair()
        progress, warnings = load_newest(tmp_path, *run)
        where = f"byte {position} of {file.name}"
        assert (progress.step, len(warnings)) in {(1, 1), (2, 0)}, where
        assert_equal(run, before if progress.step == 1 else after)
        assert progress.elapsed == progress.step, where


def test_a_checkpoint_of_another_model_leaves_no_trace(tmp_path) -> None:
    """Not even in the parameters that would have fitted."""
    model = build_decoder(SHAPE, 8, DesignRef(name="pre-ln", version=1), 1e-6, 1)
    save(tmp_path, model, build_optimizer(model, Optimizer(learning_rate=1.0)), Progress(step=2))
    run = pair()
    progress, warnings = load_newest(tmp_path, *run)
    assert progress == Progress()
    assert len(warnings) == 1
    assert_equal(run, pair())


@pytest.mark.parametrize("damage", [cut_short, flipped])
def test_after_a_new_start_the_new_checkpoints_stay(damage, tmp_path) -> None:
    """Damaged ones of later steps must not push them out."""
    for path in written(tmp_path, 8, 9).values():
        damage(tensors_of(path))
    run = pair()
    load_newest(tmp_path, *run)
    advance(run, 0)
    save(tmp_path, *run, Progress(step=1))
    other = pair(seed=9)
    assert load_newest(tmp_path, *other)[0].step == 1
    assert_equal(run, other)


def test_a_damaged_one_does_not_take_a_place(tmp_path) -> None:
    """After falling back from 9 to 8, the checkpoints of 10 and before are both sound."""
    paths = written(tmp_path, 5, 9)
    flipped(tensors_of(paths[9]))
    run = pair()
    load_newest(tmp_path, *run)
    for step in (6, 7):
        advance(run, step - 1)
        save(tmp_path, *run, Progress(step=step))
    flipped(tensors_of(tmp_path / "step-000000007"))
    assert load_newest(tmp_path, *pair())[0].step == 6


def no_space(tensors: object, *, storage_writer: Any, no_dist: bool) -> None:
    """As the writer fails: the error of each rank, wrapped."""
    (Path(storage_writer.path) / "shard.safetensors").write_bytes(b"half a header")
    error = OSError(errno.ENOSPC, "No space left on device")
    raise CheckpointException("write", {0: (error, StackSummary())})


def test_on_a_full_disk_the_previous_stays_and_the_message_counts(tmp_path, monkeypatch) -> None:
    paths = written(tmp_path, 4, 6)
    run = pair(steps=7)
    monkeypatch.setattr(checkpoint, "save_tensors", no_space)
    with pytest.raises(CheckpointError, match=r"No space left on device") as error:
        save(tmp_path, *run, Progress(step=7))
    numbers = sum(3 * p.numel() for p in run[0].parameters())  # in fp32
    assert f"it needs {4 * numbers:,} bytes and " in str(error.value)
    free = int(re.search(r"([\d,]+) are free", str(error.value))[1].replace(",", ""))
    assert free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.2)
    assert sorted(tmp_path.iterdir()) == [paths[4], paths[6]]
    assert load_newest(tmp_path, *pair())[0].step == 6


def test_a_folder_that_cannot_be_made_is_a_checkpoint_error(tmp_path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(CheckpointError, match="checkpoints"):
        save(tmp_path / "checkpoints", *pair(steps=1), Progress(step=1))


def test_a_crash_while_writing_leaves_the_previous_and_no_litter(tmp_path, monkeypatch) -> None:
    """The process is gone before the rename; what it left is used nowhere and cleared later."""
    paths = written(tmp_path, 4, 6)
    half = tmp_path / ".step-000000007.aside"
    shutil.copytree(paths[6], half)
    cut_short(tensors_of(half))
    run = pair()
    progress, warnings = load_newest(tmp_path, *run)
    assert (progress.step, warnings) == (6, [])
    advance(run, 6)
    advance(run, 7)
    save(tmp_path, *run, Progress(step=8))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "step-000000006",
        "step-000000008",
    ]


def test_a_cell_on_a_full_disk_keeps_its_checkpoint_and_goes_on_later(
    make_config, corpus, make_cell, monkeypatch
) -> None:
    config = make_config(steps=12)
    whole, folder = make_cell(config, "whole"), make_cell(config)
    expected = train(config, whole, corpus, checkpoint_seconds=1e9).measures
    with monkeypatch.context() as full:
        calls = iter(range(99))
        real = checkpoint.save_tensors
        full.setattr(
            *(checkpoint, "save_tensors"),
            lambda *a, **k: (no_space if next(calls) >= 5 else real)(*a, **k),
        )
        with pytest.raises(CheckpointError):
            train(config, folder, corpus, checkpoint_seconds=0)
    assert [p.stem for p in sorted(folder.checkpoints_path.iterdir())] == [
        "step-000000004",
        "step-000000005",
    ]
    assert train(config, folder, corpus, checkpoint_seconds=0).measures == expected


@pytest.mark.parametrize("damage", [cut_short, flipped])
def test_a_cell_says_which_checkpoint_is_damaged_and_ends_the_same(
    damage, make_config, corpus, make_cell
) -> None:
    config = make_config(steps=12)
    whole, folder = make_cell(config, "whole"), make_cell(config)
    expected = train(config, whole, corpus, checkpoint_seconds=1e9).measures
    asked = iter(range(99))
    train(config, folder, corpus, lambda: next(asked) == 7, checkpoint_seconds=0)
    newest = folder.checkpoints_path / "step-000000007"
    damage(tensors_of(newest))
    said: list[str] = []
    outcome = train(config, folder, corpus, checkpoint_seconds=0, say=said.append)
    assert len(said) == 1
    assert str(newest) in said[0]
    assert outcome.measures == expected


def test_weights_that_find_no_room_say_what_they_need(tmp_path) -> None:
    model, _ = pair()
    numbers = sum(p.numel() for p in model.parameters())
    with pytest.raises(CheckpointError, match=rf"no weights .* needs {4 * numbers:,} bytes and "):
        save_weights(tmp_path / "gone" / "model.safetensors", model)


def test_weights_come_back(tmp_path) -> None:
    model, _ = pair(steps=2)
    save_weights(tmp_path / "model.safetensors", model)
    other, _ = pair(seed=7)
    load_weights(tmp_path / "model.safetensors", other)
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name


def test_weights_of_another_model_or_none_are_refused_by_name(tmp_path) -> None:
    model, _ = pair()
    with pytest.raises(CheckpointError, match=r"none\.safetensors"):
        load_weights(tmp_path / "none.safetensors", model)
    wider = Shape(layers=1, d_model=6, ffn=4, heads=1)
    path = tmp_path / "wider.safetensors"
    save_weights(path, build_decoder(wider, 8, DesignRef(name="hc", version=1), 1e-6, 0))
    with pytest.raises(CheckpointError, match=r"wider\.safetensors"):
        load_weights(path, model)


def test_nothing_in_the_package_unpickles() -> None:
    """Neither `torch.load` nor `torch.save` nor pickle, and numpy's is off unless asked for."""
    for file in Path(depthbench.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "shelve", "marshal", "dill", "joblib"}, file
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used = f"{node.value.id}.{node.attr}"
                assert used not in {"torch.load", "torch.save"}, file
            if isinstance(node, ast.keyword):
                assert node.arg != "allow_pickle", file


def test_a_run_and_its_resume_never_call_torch_load(
    make_config, corpus, make_cell, monkeypatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("pickle was reached for")

    for name in ("load", "save"):
        monkeypatch.setattr(torch, name, refuse)
    monkeypatch.setattr("pickle.loads", refuse)
    config = make_config(steps=4)
    folder = make_cell(config)
    asked = iter(range(9))
    train(config, folder, corpus, lambda: next(asked) == 2, checkpoint_seconds=0)
    assert train(config, folder, corpus).status == "done"
