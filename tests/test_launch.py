"""A cell that starts its own ranks: how it ends well, badly, and together."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.folder import CellFolder, read_metrics
from tests.kit import cell_document, tiny_corpus

PATIENCE = 120.0
FAULTY = '''
import os
from residuals import register
from residuals.pre_ln import PreLN

@register
class Faulty(PreLN):
    """Pre-LN that one rank cannot finish."""

    name = "faulty"
    title = "Faulty"

    def finish(self, state):
        if os.environ.get("RANK") == "1":
            raise RuntimeError("boom of rank 1")
        return super().finish(state)
'''

# Stands for threads of a sharded rank that abort it now and then.
ABORTING = '''
import atexit
import os
from residuals import register
from residuals.pre_ln import PreLN

if "RANK" in os.environ:
    atexit.register(os.abort)

@register
class Aborting(PreLN):
    """Pre-LN whose ranks abort when they end."""

    name = "aborting"
    title = "Aborting"
'''


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return tiny_corpus(tmp_path_factory.mktemp("corpus"), "how far a narrow stack of depth reads")


@pytest.fixture
def make(tmp_path: Path, corpus: Corpus) -> Callable[..., CellFolder]:
    def folder(design: str = "pre-ln", **changes: Any) -> CellFolder:
        made = CellFolder(tmp_path / "cell")
        document = cell_document(corpus, design, **{"ranks": {"num": 2}} | changes)
        made.create(CellConfig.model_validate(document))
        return made

    return folder


@pytest.fixture
def start(corpus: Corpus) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the cell command; whatever is left of it at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def command(folder: CellFolder, *options: str) -> subprocess.Popen[bytes]:
        cache = corpus.path.parent.parent
        environment = os.environ | {"DEPTHBENCH_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
        with open(folder.log_path, "ab") as log:
            command = [sys.executable, "-m", "depthbench", "cell", str(folder.path), *options]
            started.append(
                subprocess.Popen(
                    command, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            )
        return started[-1]

    yield command
    for process in started:
        for each in (*ranks_of(process), process):
            each.kill()
        process.wait()


def ranks_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def training(folder: CellFolder, process: subprocess.Popen[bytes], step: int = 5) -> None:
    """Returns once the cell is in the middle of its steps."""
    deadline = time.monotonic() + PATIENCE
    while not any(r["step"] >= step for r in read_metrics(folder.metrics_path)):
        assert process.poll() is None, folder.log_path.read_text()
        assert time.monotonic() < deadline, folder.log_path.read_text()
        time.sleep(0.1)


def result(folder: CellFolder) -> dict[str, Any]:
    return dict(json.loads(folder.result_path.read_text()))


def test_a_rank_that_has_done_its_work_cannot_fail_any_more(make, start, tmp_path) -> None:
    plugin = tmp_path / "aborting.py"
    plugin.write_text(ABORTING)
    folder = make("aborting", ranks={"num": 2, "mode": "fsdp"})
    assert start(folder, "--plugin", str(plugin)).wait(PATIENCE) == 0, folder.log_path.read_text()
    assert result(folder)["status"] == "done"
    assert "ended by signal" not in folder.log_path.read_text()


def test_a_cell_starts_its_ranks_and_says_so(make, start) -> None:
    folder = make()
    assert start(folder).wait(PATIENCE) == 0, folder.log_path.read_text()
    found = result(folder)
    assert (found["status"], found["environment"]["ranks"]) == ("done", 2)
    costs, seconds = found["ledger"], found["ledger"]["step_seconds"] * 12
    # Twelve steps and an evaluation on two devices.
    assert costs["device_hours"] * 3600 >= 2 * seconds
    assert costs["tokens_per_second"] == pytest.approx(32 * 12 / seconds)
    assert start(folder).wait(PATIENCE) == 0  # finished: no rank is started


def test_the_rank_that_failed_first_is_named(make, start, tmp_path) -> None:
    plugin = tmp_path / "faulty.py"
    plugin.write_text(FAULTY)
    folder = make("faulty")
    assert start(folder, "--plugin", str(plugin)).wait(PATIENCE) == 1
    found = result(folder)
    assert found["status"] == "failed"
    assert found["error"] == "rank 1: RuntimeError: boom of rank 1"
    assert "Traceback" in folder.log_path.read_text()


def test_on_sigterm_all_save_together_and_one_goes_on(make, start) -> None:
    folder = make(steps=4000, evaluation={"tokens": 64, "points": 1})
    process = start(folder)
    training(folder, process, step=40)
    process.terminate()
    assert process.wait(PATIENCE) == 75, folder.log_path.read_text()
    found = result(folder)
    assert found["status"] == "interrupted"
    (saved,) = folder.checkpoints_path.iterdir()
    assert saved.name == f"step-{found['step']:09d}"


def test_a_rank_that_is_killed_fails_the_cell(make, start) -> None:
    folder = make(steps=4000, evaluation={"tokens": 64, "points": 1})
    process = start(folder)
    training(folder, process, step=40)
    ranks_of(process)[-1].kill()
    assert process.wait(PATIENCE) == 1
    assert "was ended by signal 9" in result(folder)["error"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of a parent's death")
def test_ranks_end_with_who_started_them(make, start) -> None:
    folder = make(steps=4000, evaluation={"tokens": 64, "points": 1})
    process = start(folder)
    training(folder, process, step=40)
    ranks = ranks_of(process)
    assert len(ranks) >= 2
    os.kill(process.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(ranks, timeout=PATIENCE)
    assert alive == []
