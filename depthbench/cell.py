"""The cell command: one training run on its folder, started by whoever likes to."""

import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import residuals
from depthbench import launch
from depthbench.config import CellConfig
from depthbench.conformance.badge import badge
from depthbench.data.pinned import open_pinned
from depthbench.environment import environment
from depthbench.errors import EXIT_FAILED, EXIT_INTERRUPTED, DepthbenchError
from depthbench.executors.local import end_with_parent, watch_parent
from depthbench.folder import (
    FINISHED,
    SCHEMA,
    CellFolder,
    last_training_record,
    read_metrics,
    write_json,
)
from depthbench.ledger import ledger
from depthbench.measure import StoppedError, check, layer_statistics, measure
from depthbench.model.determinism import deterministic
from depthbench.train.ranks import World, end, joined, leave, spread
from depthbench.train.trainer import CHECKPOINT_SECONDS, Outcome, train
from residuals import DesignError

ORPHANED_SECONDS = 8.0


@dataclass
class _StopRequest:
    """SIGTERM or SIGINT ask a cell to save and end; so does the death of who started it."""

    parent_alive: Callable[[], bool]
    asked: bool = False

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def __call__(self) -> bool:
        return self.asked or not self.parent_alive()


def main(
    path: Path, plugins: Sequence[Path] = (), checkpoint_seconds: float = CHECKPOINT_SECONDS
) -> int:
    """Runs or continues the cell in `path`; returns the exit code (0, 1, or 75 if interrupted).

    A cell of several ranks starts them, unless `torchrun` has made this process one of them.
    """
    folder = CellFolder(path)
    config = folder.config()
    parent_alive, starts = watch_parent(), config.ranks.num > 1 and not spread()
    # Ranks lose their parent only when that has waited, so that each of the two has half of it.
    halved = starts or launch.started_here()
    end_with_parent(parent_alive, ORPHANED_SECONDS / 2 if halved else ORPHANED_SECONDS)
    if starts:
        return _start(folder, config, plugins)
    stop = _StopRequest(parent_alive)
    stop.install()
    try:
        with joined(config.device) as world, folder.lock() if world.leads else nullcontext():
            code = 0
            if not world.gathered(folder.finished)[0]:
                code = _run(folder, config, stop, checkpoint_seconds, world)
    except Exception as error:  # before the cell began: no device, no lock
        launch.tell(str(error))
        raise
    # Whoever started the ranks takes an exit code for a crash, and reads the folder.
    if code == EXIT_INTERRUPTED and launch.started_here():
        code = 0
    return end(code) if world.num > 1 else code


def _run(
    folder: CellFolder,
    config: CellConfig,
    stop: _StopRequest,
    checkpoint_seconds: float,
    world: World,
) -> int:
    started = datetime.now(UTC)
    try:
        corpus = open_pinned(config.corpus)
        check(corpus, config)
        with deterministic(config.deterministic):
            outcome = train(
                *(config, folder, corpus, stop, checkpoint_seconds),
                observe=layer_statistics(folder, corpus, config),
                world=world,
            )
        leave()  # together, before one of them measures for long
        if not world.leads:
            return EXIT_INTERRUPTED if outcome.status == "interrupted" else 0
        missing = measure(folder, corpus, stop) if outcome.status == "done" else {}
    except StoppedError:
        outcome, missing = replace(outcome, status="interrupted", measures=None), {}
    except Exception as error:
        expected = isinstance(error, DepthbenchError | DesignError)
        if not expected:
            traceback.print_exc()
        message = str(error) if expected else f"{type(error).__name__}: {error}"
        print(message)
        launch.tell(message)
        if world.leads:
            _fail(folder, config, started, message)
        if world.num > 1:
            end(EXIT_FAILED)  # to leave an accelerator's group in order is to wait for the others
        return EXIT_FAILED
    result = _ended(config, folder, started, outcome, corpus.unigram_entropy, world.num)
    result["not_measured"] = missing
    write_json(folder.result_path, result)
    return EXIT_INTERRUPTED if outcome.status == "interrupted" else 0


def _start(folder: CellFolder, config: CellConfig, plugins: Sequence[Path]) -> int:
    started = datetime.now(UTC)
    if folder.finished:
        return 0
    try:
        launch.start_ranks(folder.path, config.ranks.num, plugins)
    except launch.RanksStoppedError:
        pass
    except launch.RanksError as error:
        print(error)
        with folder.lock():
            if folder.status() in FINISHED:  # it failed on its way out
                return 0
            _fail(folder, config, started, str(error))
        return EXIT_FAILED
    return 0 if folder.finished else EXIT_INTERRUPTED


def _fail(folder: CellFolder, config: CellConfig, started: datetime, message: str) -> None:
    last = last_training_record(folder.metrics_path)
    result = _result(config, started, "failed", step=last["step"] if last else 0, error=message)
    write_json(folder.result_path, result)


def _ended(
    config: CellConfig,
    folder: CellFolder,
    started: datetime,
    outcome: Outcome,
    unigram: float,
    ranks: int,
) -> dict[str, Any]:
    evaluations = [r for r in read_metrics(folder.metrics_path) if "evaluation" in r]
    history = [[record["tokens"], record["evaluation"]["loss"]] for record in evaluations]
    measures = None
    if outcome.measures:
        measures = {**outcome.measures, "unigram_entropy": unigram, "history": history}
    ending = (outcome.status, outcome.step, measures)
    result = _result(config, started, *ending, ranks=ranks)
    result["ledger"] = {
        **ledger(config).as_dict(),
        "activation_bytes": outcome.activation_bytes,
        "device_hours": outcome.device_seconds / 3600,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "tokens_per_second": outcome.tokens_per_second,
        "step_seconds": outcome.step_seconds,
    }
    return result


def _result(
    config: CellConfig,
    started: datetime,
    status: str,
    step: int,
    measures: dict[str, Any] | None = None,
    *,
    error: str | None = None,
    ranks: int | None = None,
) -> dict[str, Any]:
    finished = datetime.now(UTC)
    return {
        "schema": SCHEMA,
        "status": status,
        "config": config.model_dump(mode="json"),
        "step": step,
        "diverged_step": step if status == "diverged" else None,
        "error": error,
        "measures": measures,
        "not_measured": {},
        "ledger": None,
        "conformance": _badge(config),
        "environment": environment(config.device, config.threads, ranks or config.ranks.num),
        "times": {
            "started": started.isoformat(timespec="seconds"),
            "finished": finished.isoformat(timespec="seconds"),
            "seconds": (finished - started).total_seconds(),
        },
    }


def _badge(config: CellConfig) -> str | None:
    """What `depthbench check` last said of the design as it is written now; None if never asked."""
    try:
        design = residuals.get(f"{config.design.name}@{config.design.version}")
    except DesignError:  # the cell has failed for it
        return None
    known = badge(design, config.design.options)
    return known["badge"] if known else None
