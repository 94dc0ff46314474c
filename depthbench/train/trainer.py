"""One training run, from its config to its measures; it reads top to bottom.

A run is a pure function of its config: initial values, order of tokens and learning rate are
functions of the seed and the step, so that stopping and going on changes no bit of a loss on the
same machine.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite, log
from typing import Any, Literal

import torch

from depthbench.config import CellConfig, Measures
from depthbench.data import Corpus, batch
from depthbench.environment import peak_memory_bytes
from depthbench.folder import CellFolder, Metrics, truncate_metrics
from depthbench.model.build import build_model
from depthbench.model.decoder import LanguageModel
from depthbench.train import checkpoint
from depthbench.train.checkpoint import Progress
from depthbench.train.evaluate import evaluate, windows_by_source
from depthbench.train.memory import activation_bytes
from depthbench.train.optimizer import (
    assert_each_has_gradient,
    assert_each_once,
    build_optimizer,
    learning_rate,
    set_learning_rate,
)

RECORDS = 100
CHECKPOINT_SECONDS = 60.0
# A loss of twice a uniform guess is no longer training, even while it is finite.
DIVERGED_AT = 2.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `measures` of the end, or None if it did not get there.

    `seconds` counts all its parts, if it was stopped and went on.
    """

    status: Literal["done", "diverged", "interrupted"]
    step: int
    measures: dict[str, Any] | None
    tokens_per_second: float | None
    step_seconds: float | None
    seconds: float
    peak_memory_bytes: int
    activation_bytes: int | None = None


def train(
    config: CellConfig,
    folder: CellFolder,
    corpus: Corpus,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    say: Callable[[str], None] = print,
    observe: Callable[[int, LanguageModel], None] = lambda step, model: None,
) -> Outcome:
    """Trains the cell from its newest checkpoint; `stop` is asked between steps.

    `observe` sees the model after every step, and may not change it.

    Raises `DesignError` at the start if a parameter has no rule, is not in the optimiser exactly
    once, or gets no gradient; `CheckpointError` if a checkpoint cannot be written.
    """
    torch.set_num_threads(config.threads)
    model = build_model(config)
    windows_by_source(corpus, config)  # too short a stream shows now, not after the last step
    optimizer = build_optimizer(model, config.optimizer)
    assert_each_once(model, optimizer)
    progress, warnings = checkpoint.load_newest(folder.checkpoints_path, model, optimizer)
    for warning in warnings:
        say(warning)
    truncate_metrics(folder.metrics_path, progress.step)
    if config.compile:
        model.compile(dynamic=False)
    measures = None
    diverged = False
    last_saved = segment_start = time.monotonic()
    elapsed_before = progress.elapsed
    with Metrics(folder.metrics_path) as metrics:
        while progress.step < config.steps and not diverged:
            if stop():
                progress.elapsed = elapsed_before + time.monotonic() - segment_start
                checkpoint.save(folder.checkpoints_path, model, optimizer, progress)
                return _outcome("interrupted", config, progress, None)
            started = time.monotonic()
            rate = learning_rate(progress.step, config.steps, config.optimizer)
            set_learning_rate(optimizer, rate)
            loss, grad_norm = _step(model, optimizer, corpus, config, progress.step)
            diverged = _has_diverged(loss, grad_norm, progress.step, config)
            progress.step += 1
            now = time.monotonic()
            progress.train_seconds += now - started
            progress.elapsed = elapsed_before + now - segment_start
            if not diverged:
                progress.pending_losses.append(loss)
            if progress.pending_losses and (diverged or _due(progress.step, config, RECORDS)):
                metrics.append(_record(config, progress, rate, grad_norm))
                progress.recent_losses = (progress.recent_losses + progress.pending_losses)[
                    -max(1, config.steps // 10) :
                ]
                progress.pending_losses = []
            observe(progress.step, model)
            if not diverged and _due(progress.step, config, config.evaluation.points):
                measures = evaluate(model, corpus, config)
                if not isfinite(measures["loss"]):
                    diverged, measures = True, None
                else:
                    tokens = progress.step * config.tokens_per_step
                    record = {"step": progress.step, "tokens": tokens, "evaluation": measures}
                    metrics.append(record)
            if time.monotonic() - last_saved >= checkpoint_seconds and not diverged:
                checkpoint.save(folder.checkpoints_path, model, optimizer, progress)
                last_saved = time.monotonic()
    if diverged:
        return _outcome("diverged", config, progress, None)
    if config.measures != Measures():
        # Whoever is stopped while measuring need not train the last stretch again.
        checkpoint.save(folder.checkpoints_path, model, optimizer, progress)
    checkpoint.save_weights(folder.model_path, model)
    outcome = _outcome("done", config, progress, measures or evaluate(model, corpus, config))
    return replace(outcome, activation_bytes=activation_bytes(model, config))


def _step(
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    corpus: Corpus,
    config: CellConfig,
    step: int,
) -> tuple[float, float]:
    """Forward, backward and update; mean loss (nats per token) and gradient norm before clipping.

    Each micro-batch adds its sum over tokens divided by the whole batch's count, so that its size
    does not matter.
    """
    tokens = batch(corpus, config.seed, step, config.batch_size, config.sequence_length)
    ids = torch.from_numpy(tokens).to(config.device)
    device_type = torch.device(config.device).type
    loss = 0.0
    optimizer.zero_grad()
    for micro in ids.split(config.micro_batch_size):
        with torch.autocast(device_type, torch.bfloat16, enabled=config.precision == "bf16"):
            total = model.summed_nll(micro[:, :-1], micro[:, 1:])
        mean = total / config.tokens_per_step
        mean.backward()
        loss += mean.item()
    if step == 0:
        assert_each_has_gradient(model)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.clip).item()
    if isfinite(loss) and isfinite(norm):
        optimizer.step()
    return loss, norm


def _has_diverged(loss: float, grad_norm: float, step: int, config: CellConfig) -> bool:
    if not (isfinite(loss) and isfinite(grad_norm)):
        return True
    warm = step >= config.optimizer.warmup_fraction * config.steps
    return warm and loss > DIVERGED_AT * log(config.corpus.vocab_size)


def _due(step: int, config: CellConfig, points: int) -> bool:
    """Whether one of `points` marks, evenly spaced up to the last step, is reached at `step`."""
    return step * points // config.steps > (step - 1) * points // config.steps


def _record(
    config: CellConfig, progress: Progress, rate: float, grad_norm: float
) -> dict[str, int | float | None]:
    seconds = progress.train_seconds / progress.step
    return {
        "step": progress.step,
        "tokens": progress.step * config.tokens_per_step,
        "loss": sum(progress.pending_losses) / len(progress.pending_losses),
        "learning_rate": rate,
        "grad_norm": grad_norm if isfinite(grad_norm) else None,
        "tokens_per_second": config.tokens_per_step / seconds,
        "elapsed": progress.elapsed,
        "eta": seconds * (config.steps - progress.step),
    }


def _outcome(
    status: Literal["done", "diverged", "interrupted"],
    config: CellConfig,
    progress: Progress,
    measures: dict[str, Any] | None,
) -> Outcome:
    if measures is not None:
        measures = {
            **measures,
            "train_loss": sum(progress.recent_losses) / len(progress.recent_losses),
        }
    seconds = progress.train_seconds / progress.step if progress.step else None
    return Outcome(
        status,
        progress.step,
        measures,
        config.tokens_per_step / seconds if seconds else None,
        seconds,
        progress.elapsed,
        peak_memory_bytes(config.device),
    )
