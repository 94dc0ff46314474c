"""The cell command: its result file and exit code, however the run ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest
from safetensors.torch import load_file

import depthbench
import residuals
from depthbench import cell
from depthbench.config import CellConfig
from depthbench.conformance.badge import keep, source_hash
from depthbench.data import Corpus
from depthbench.errors import DepthbenchError
from depthbench.folder import CellFolder, read_metrics
from depthbench.ledger import ledger
from depthbench.store import records
from depthbench.train import trainer
from tests.kit import cell_document, tiny_corpus

Make = Callable[..., CellFolder]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    words = "a cell is a folder that one command runs whoever may have started it"
    return tiny_corpus(tmp_path_factory.mktemp("text"), words)


@pytest.fixture
def make(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A cell's folder; the signal handlers that the command installs are taken back."""
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))

    def make(design: str = "pre-ln", learning_rate: float = 1e-2, **changes: Any) -> CellFolder:
        changes = {"evaluation": {"tokens": 64, "points": 3}} | changes
        changes |= {"optimizer": {"learning_rate": learning_rate}}
        folder = CellFolder(tmp_path / "cell")
        folder.create(CellConfig.model_validate(cell_document(corpus, design, **changes)))
        return folder

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield make
    for number, handler in handlers.items():
        signal.signal(number, handler)


def in_step(monkeypatch: pytest.MonkeyPatch, number: int, do: Callable[[], Any]) -> None:
    """Does something while step `number`, counted from 0, is computed; only once."""
    real, done = trainer.batch, []

    def batch(corpus: Corpus, seed: int, step: int, *sizes: int) -> Any:
        if step == number and not done:
            done.append(step)
            do()
        return real(corpus, seed, step, *sizes)

    monkeypatch.setattr(trainer, "batch", batch)


def result_of(folder: CellFolder) -> dict[str, Any]:
    """The result, in JSON that knows no NaN, with every field that a row is made of."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} in {folder.result_path}")

    result = json.loads(folder.result_path.read_text(), parse_constant=refuse)
    assert list(result) == [
        *("schema", "status", "config", "step", "diverged_step", "error"),
        *("measures", "not_measured", "ledger", "conformance", "environment", "times"),
    ]
    assert result["schema"] == 1
    assert CellConfig.model_validate(result["config"]) == folder.config()
    return result


def test_a_run_to_the_end_is_written_whole(make, corpus) -> None:
    folder = make("mhc")
    assert cell.main(folder.path) == 0
    result = result_of(folder)
    assert (result["status"], result["step"]) == ("done", 12)
    assert (result["error"], result["diverged_step"]) == (None, None)
    measures = result["measures"]
    evaluations = [r for r in read_metrics(folder.metrics_path) if "evaluation" in r]
    assert measures["history"] == [[r["tokens"], r["evaluation"]["loss"]] for r in evaluations]
    assert [tokens for tokens, _ in measures["history"]] == [128, 256, 384]
    assert measures["loss"] == measures["history"][-1][1]
    assert measures["unigram_entropy"] == corpus.unigram_entropy
    costs = ledger(folder.config()).as_dict()
    assert {key: result["ledger"][key] for key in costs} == costs
    assert result["ledger"]["added_by_design_share"] == costs["added"] / costs["backbone"]
    measured = ("peak_memory_bytes", "activation_bytes", "tokens_per_second", "step_seconds")
    assert all(result["ledger"][key] > 0 for key in measured)
    saved = load_file(folder.model_path)
    assert sum(t.numel() for t in saved.values()) == costs["parameters"]


def test_a_result_says_where_it_was_made(make) -> None:
    folder = make(steps=1)
    cell.main(folder.path)
    result = result_of(folder)
    environment = result["environment"]
    assert set(environment) == {
        *("depthbench", "torch", "python", "numpy", "platform", "host", "cpu", "device"),
        *("threads", "ranks", "git_commit", "git_dirty"),
    }
    assert environment["depthbench"] == depthbench.__version__
    assert [environment[key] for key in ("device", "threads", "ranks")] == ["cpu", 1, 1]
    assert environment["python"] == sys.version.split()[0]
    started, finished = (
        datetime.fromisoformat(result["times"][key]) for key in ("started", "finished")
    )
    assert started <= finished
    assert started.tzinfo is not None


def test_a_row_carries_what_was_last_found_of_its_design(make) -> None:
    folder = make()
    assert cell.main(folder.path) == 0
    assert result_of(folder)["conformance"] is None
    design = residuals.get("pre-ln")
    report = {"design": "pre-ln", "source_hash": source_hash(design), "options": {}}
    keep(report | {"badge": "fails: causality"})
    folder.result_path.unlink()
    assert cell.main(folder.path) == 0
    assert result_of(folder)["conformance"] == "fails: causality"
    (row,) = records([folder.path])
    assert row["conformance"] == "fails: causality"


def test_a_finished_cell_is_not_run_again(make) -> None:
    folder = make(steps=2)
    cell.main(folder.path)
    before = {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}
    assert cell.main(folder.path) == 0
    assert {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_after_the_step_with_75(number, make, monkeypatch) -> None:
    folder = make()
    in_step(monkeypatch, 3, lambda: os.kill(os.getpid(), number))
    assert cell.main(folder.path) == 75
    result = result_of(folder)
    assert (result["status"], result["step"], result["measures"]) == ("interrupted", 4, None)
    assert (folder.checkpoints_path / "step-000000004").is_dir()
    assert folder.status() == "interrupted"
    assert cell.main(folder.path) == 0
    assert (result_of(folder)["status"], result_of(folder)["step"]) == ("done", 12)


def test_a_stopped_run_measures_what_a_whole_one_does(make, monkeypatch, tmp_path) -> None:
    folder = make()
    cell.main(folder.path)
    whole = result_of(folder)
    folder.path.rename(tmp_path / "whole")
    folder = make()
    in_step(monkeypatch, 5, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert cell.main(folder.path) == 75
    assert cell.main(folder.path) == 0
    assert result_of(folder)["measures"] == whole["measures"]


def test_divergence_is_an_outcome_with_its_step_and_without_numbers(make) -> None:
    folder = make(learning_rate=1e25)
    assert cell.main(folder.path) == 0
    result = result_of(folder)
    assert result["status"] == "diverged"
    assert result["diverged_step"] == result["step"]
    assert 1 < result["step"] < 12
    assert (result["measures"], result["error"]) == (None, None)
    assert "nan" not in folder.metrics_path.read_text().lower()
    assert folder.finished


def test_a_missing_corpus_fails_with_what_to_do_and_goes_on_when_it_is_there(
    make, corpus, monkeypatch, tmp_path, capsys
) -> None:
    folder = make()
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "empty"))
    assert cell.main(folder.path) == 1
    result = result_of(folder)
    assert (result["status"], result["measures"]) == ("failed", None)
    assert "depthbench data prepare" in result["error"]
    printed = capsys.readouterr()
    assert result["error"] in printed.out
    assert "Traceback" not in printed.err
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    assert cell.main(folder.path) == 0
    assert result_of(folder)["status"] == "done"


def test_an_unexpected_error_is_contained_with_its_traceback(make, monkeypatch, capsys) -> None:
    folder = make()

    def fail() -> None:
        raise RuntimeError("the allocator gave up")

    in_step(monkeypatch, 5, fail)
    assert cell.main(folder.path, checkpoint_seconds=0) == 1
    result = result_of(folder)
    assert result["status"] == "failed"
    assert result["error"] == "RuntimeError: the allocator gave up"
    assert "Traceback" in capsys.readouterr().err
    assert cell.main(folder.path) == 0
    assert read_metrics(folder.metrics_path)[0]["step"] == 1


def test_a_failed_result_says_how_far_the_run_came(make, monkeypatch) -> None:
    folder = make()

    def fail() -> None:
        raise MemoryError

    in_step(monkeypatch, 5, fail)
    assert cell.main(folder.path) == 1
    assert result_of(folder)["step"] == 5


def test_a_design_that_cannot_be_built_is_a_failed_result(make) -> None:
    """As when a plugin is not given to the process: its ledger is unknown too."""
    folder = make("pre-lm")
    assert cell.main(folder.path) == 1
    result = result_of(folder)
    assert result["status"] == "failed"
    assert "pre-ln" in result["error"]  # the nearest name


def test_without_a_config_nothing_is_written(tmp_path) -> None:
    with pytest.raises(DepthbenchError, match=r"config\.json"):
        cell.main(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_ends_with_the_cells_exit_code(make, corpus, tmp_path) -> None:
    """In a process of its own, with a design from a file."""
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from residuals import register\nfrom residuals.pre_ln import PreLN\n\n"
        '@register\nclass Mine(PreLN):\n    """Pre-LN by another name."""\n'
        '    name = "mine"\n    title = "Mine"\n'
    )
    folder = make("mine", steps=1)
    root = str(Path(residuals.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "depthbench", "cell", str(folder.path)]
    done = subprocess.run([*command, "--plugin", str(plugin)], env=environment, cwd=tmp_path)
    assert done.returncode == 0
    assert result_of(folder)["status"] == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux hands a parent's peak to its children")
def test_the_peak_is_the_processs_own_and_not_its_parents() -> None:
    child = "from depthbench.environment import peak_memory_bytes as p; print(p('cpu'))"
    parent = (
        "import subprocess, sys\n"
        "block = bytearray(700 * 2**20)\n"
        "block[::4096] = b'x' * (len(block) // 4096)\n"
        "subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(depthbench.__file__).parents[1])}
    command = [sys.executable, "-c", parent, child]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert 50 * 2**20 < int(done.stdout) < 700 * 2**20
