import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import depthbench
from depthbench.config import CellConfig
from depthbench.errors import DepthbenchError, InputError
from depthbench.folder import (
    CellFolder,
    Metrics,
    find_cells,
    last_training_record,
    read_metrics,
    read_result,
    replacing,
    truncate_metrics,
    write_json,
)


def cell_config(**changes: Any) -> CellConfig:
    document = {
        "suite": "unit",
        "ladder": "none",
        "design": {"name": "pre-ln", "version": 1},
        "shape": {"layers": 2, "d_model": 8, "ffn": 16, "heads": 2},
        "corpus": {"name": "none", "hash": "a", "tokenizer_hash": "b", "vocab_size": 16},
        "sequence_length": 4,
        "batch_size": 2,
        "micro_batch_size": 2,
        "steps": 5,
        "optimizer": {"learning_rate": 0.001},
        "evaluation": {"tokens": 8},
        "norm_eps": 1e-6,
        "seed": 0,
    }
    return CellConfig.model_validate(document | changes)


def result_of(status: str) -> dict[str, Any]:
    return {"schema": 1, "status": status, "step": 3, "error": None, "measures": None}


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """A write beyond `size` bytes stops half way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def folder(tmp_path: Path) -> CellFolder:
    folder = CellFolder(tmp_path / "cell")
    folder.create(cell_config())
    return folder


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_aside(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"old": 1})
    with files_no_longer_than(100), pytest.raises(OSError, match="File too large"):
        write_json(path, {"new": "x" * 1000})
    assert json.loads(path.read_text()) == {"old": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_replacing_shows_the_new_file_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")
    with replacing(path) as aside:
        aside.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_never_written(tmp_path: Path, value: float) -> None:
    path = tmp_path / "metrics.jsonl"
    with Metrics(path) as metrics:
        metrics.append({"step": 1, "loss": 2.0})
        with pytest.raises(DepthbenchError, match=r"metrics\.jsonl"):
            metrics.append({"step": 2, "evaluation": {"loss": value}})
    assert read_metrics(path) == [{"step": 1, "loss": 2.0}]
    with pytest.raises(DepthbenchError, match=r"result\.json"):
        write_json(tmp_path / "result.json", {"loss": value})
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize("torn", [b'{"step": 3, "lo', b"\0\0\0\0\n", b'{"step": 3, "loss": 1.0}'])
def test_a_torn_last_line_is_no_record_and_is_dropped_on_opening(
    tmp_path: Path, torn: bytes
) -> None:
    path = tmp_path / "metrics.jsonl"
    whole = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}]
    path.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in whole) + torn)
    assert read_metrics(path) == whole
    with Metrics(path) as metrics:
        metrics.append({"step": 3, "loss": 1.5})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        *whole,
        {"step": 3, "loss": 1.5},
    ]


def test_damage_inside_metrics_is_named_with_path_and_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": NaN}\n{"step": 3}\n')
    with pytest.raises(DepthbenchError, match=r"metrics\.jsonl, line 2"):
        read_metrics(path)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with Metrics(path) as metrics:
        metrics.append({"step": 1})
        with (
            files_no_longer_than(path.stat().st_size + 7),
            pytest.raises(OSError, match="File too large"),
        ):
            metrics.append({"step": 2, "loss": 1.0})
        metrics.append({"step": 3})
    assert path.read_text() == '{"step": 1}\n{"step": 3}\n'


def test_truncation_keeps_the_step_itself_and_what_is_before(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    truncate_metrics(path, 2)
    assert not path.exists()
    assert read_metrics(path) == []
    with Metrics(path) as metrics:
        for step in (1, 2, 2, 3, 4):
            metrics.append({"step": step})
    truncate_metrics(path, 2)
    assert [record["step"] for record in read_metrics(path)] == [1, 2, 2]


def test_the_last_training_record_is_found_behind_evaluations_and_a_torn_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.jsonl"
    assert last_training_record(path) is None
    with Metrics(path) as metrics:
        for step in range(1, 2001):
            metrics.append({"step": step, "loss": 1.0 / step})
        metrics.append({"step": 2000, "evaluation": {"loss": 9.0}})
    with path.open("ab") as file:
        file.write(b'{"step": 2001, "loss"')
    assert last_training_record(path) == {"step": 2000, "loss": 1.0 / 2000}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "no JSON object"),
        ('{"schema": 1, "status": "won"}', "'won'"),
        ('{"schema": 1, "status": "done", "loss": NaN}', "NaN"),
    ],
)
def test_a_damaged_result_is_named(folder: CellFolder, text: str, message: str) -> None:
    folder.result_path.write_text(text)
    with pytest.raises(DepthbenchError, match=message) as caught:
        folder.status()
    assert str(folder.result_path) in str(caught.value)


def test_a_result_of_another_schema_is_the_users_to_decide(folder: CellFolder) -> None:
    folder.result_path.write_text('{"schema": 2, "status": "done"}')
    with pytest.raises(InputError, match="schema 2"):
        read_result(folder.result_path)


def test_a_folder_belongs_to_one_experiment(folder: CellFolder) -> None:
    assert folder.config() == cell_config()
    folder.create(cell_config())
    with pytest.raises(InputError, match="different experiment"):
        folder.create(cell_config(seed=1))
    assert folder.config() == cell_config()
    folder.config_path.write_text('{"suite": "unit"}')
    with pytest.raises(DepthbenchError, match="is not a cell"):
        folder.config()


def test_status_follows_result_lock_and_traces(folder: CellFolder) -> None:
    assert folder.status() == "pending"
    with folder.lock():
        assert folder.status() == "running"
    with Metrics(folder.metrics_path) as metrics:
        metrics.append({"step": 1})
    assert folder.status() == "interrupted"
    for ending in ("interrupted", "failed", "diverged", "done"):
        write_json(folder.result_path, result_of(ending))
        assert folder.status() == ending
        assert folder.finished == (ending in ("done", "diverged"))
        with folder.lock():
            assert folder.status() == (ending if folder.finished else "running")


def test_one_process_at_a_time_runs_a_cell(folder: CellFolder) -> None:
    with (
        folder.lock(),
        pytest.raises(DepthbenchError, match="run by another process") as caught,
        folder.lock(wait=0.1),
    ):
        pass
    assert str(folder.path) in str(caught.value)
    with folder.lock(wait=0.0):
        pass


def test_asking_for_the_status_does_not_keep_a_cell_from_starting(folder: CellFolder) -> None:
    folder.lock_path.touch()
    asking = os.open(folder.lock_path, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    assert not folder.running()
    timer = threading.Timer(0.2, os.close, [asking])
    timer.start()
    begun = time.monotonic()
    with folder.lock():
        assert time.monotonic() - begun > 0.1
    timer.join()


def test_the_lock_dies_with_its_process(folder: CellFolder) -> None:
    code = (
        "import sys, time; from pathlib import Path; from depthbench.folder import CellFolder\n"
        "with CellFolder(Path(sys.argv[1])).lock(): print('held', flush=True); time.sleep(60)"
    )
    root = str(Path(depthbench.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder.path)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": root},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert folder.running()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert not folder.running()
        with folder.lock(wait=0.0):
            pass


def test_cells_are_found_below_a_root_but_not_inside_cells(tmp_path: Path) -> None:
    for name in ("b/two", "a/one"):
        CellFolder(tmp_path / name).create(cell_config())
    export = tmp_path / "a/one/export"
    export.mkdir()
    (export / "config.json").write_text("{}")
    assert [cell.path for cell in find_cells(tmp_path)] == [tmp_path / "a/one", tmp_path / "b/two"]
    assert [cell.path for cell in find_cells(tmp_path / "a/one")] == [tmp_path / "a/one"]
