"""One training run, from its config to its measures; it reads top to bottom.

A run is a pure function of its config: initial values, order of tokens and learning rate are
functions of the seed and the step, so that stopping and going on changes no bit of a loss on the
same machine.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import ceil, isfinite, log
from typing import Any, Literal

import torch
from torch import Tensor

from depthbench.config import CellConfig, Measures
from depthbench.data import Corpus, batch
from depthbench.environment import peak_memory_bytes
from depthbench.folder import CellFolder, Metrics, truncate_metrics
from depthbench.model.decoder import LanguageModel
from depthbench.model.determinism import full_products
from depthbench.train import checkpoint
from depthbench.train.checkpoint import Progress
from depthbench.train.evaluate import evaluate, windows_by_source
from depthbench.train.memory import activation_bytes
from depthbench.train.objective import Trainee
from depthbench.train.optimizer import (
    assert_each_has_gradient,
    assert_each_once,
    build_optimizer,
    learning_rate,
    set_learning_rate,
)
from depthbench.train.parallel import trainee
from depthbench.train.ranks import ALONE, World, whole
from depthbench.train.weights import save_weights

RECORDS = 100
CHECKPOINT_SECONDS = 60.0
# A loss of twice a uniform guess is no longer training, even while it is finite.
DIVERGED_AT = 2.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `measures` of the end, or None if it did not get there.

    `seconds` counts all its parts, if it was stopped and went on, and `device_seconds` each part
    as often as it had ranks.
    """

    status: Literal["done", "diverged", "interrupted"]
    step: int
    measures: dict[str, Any] | None
    tokens_per_second: float | None
    step_seconds: float | None
    seconds: float
    device_seconds: float
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
    world: World = ALONE,
) -> Outcome:
    """Trains the cell from its newest checkpoint; `stop` is asked between steps.

    `observe` sees the model after every step, and may not change it. With several ranks each calls
    this; the first writes the folder, and all return the same.

    Raises `DesignError` at the start if a parameter has no rule, is not in the optimiser exactly
    once, or gets no gradient; `CheckpointError` if a checkpoint cannot be written.
    """
    torch.set_num_threads(config.threads)
    full_products()
    subject = trainee(config, world)
    model = subject.model
    windows_by_source(corpus, config)  # too short a stream shows now, not after the last step
    optimizer = build_optimizer(model, config.optimizer)
    assert_each_once(model, optimizer)
    state = (model, optimizer)
    progress, warnings = checkpoint.load_newest(folder.checkpoints_path, *state, world)
    if world.leads:
        for warning in warnings:
            say(warning)
        truncate_metrics(folder.metrics_path, progress.step)
    measures = None
    diverged = False
    last_saved = segment_start = time.monotonic()
    begun_at = progress.step
    elapsed_before, device_before = progress.elapsed, progress.device_seconds

    def count_time(progress: Progress) -> None:
        here = time.monotonic() - segment_start
        progress.elapsed = elapsed_before + here
        progress.device_seconds = device_before + world.num * here

    with Metrics(folder.metrics_path) if world.leads else nullcontext() as metrics:
        while progress.step < config.steps and not diverged:
            new = progress.step > begun_at
            due = new and time.monotonic() - last_saved >= checkpoint_seconds
            stopping, saving = world.any(stop(), due)
            if saving or (stopping and (new or progress.step == 0)):
                count_time(progress)
                checkpoint.save(folder.checkpoints_path, *state, progress, world)
                last_saved = time.monotonic()
            if stopping:
                return _outcome("interrupted", config, progress, None, world)
            started = time.monotonic()
            rate = learning_rate(progress.step, config.steps, config.optimizer)
            set_learning_rate(optimizer, rate)
            loss, grad_norm = _step(subject, optimizer, corpus, config, progress.step, world)
            diverged = _has_diverged(loss, grad_norm, progress.step, config)
            progress.step += 1
            progress.train_seconds += time.monotonic() - started
            count_time(progress)
            if not diverged:
                progress.pending_losses.append(loss)
            if progress.pending_losses and (diverged or _due(progress.step, config, RECORDS)):
                if metrics:
                    metrics.append(_record(config, progress, rate, grad_norm))
                progress.recent_losses = (progress.recent_losses + progress.pending_losses)[
                    -max(1, config.steps // 10) :
                ]
                progress.pending_losses = []
            if world.leads:
                observe(progress.step, model)
            if not diverged and _due(progress.step, config, config.evaluation.points):
                measures = evaluate(subject, corpus, config, world)
                if not isfinite(measures["loss"]):
                    diverged, measures = True, None
                elif metrics:
                    tokens = progress.step * config.tokens_per_step
                    record = {"step": progress.step, "tokens": tokens, "evaluation": measures}
                    metrics.append(record)
    if diverged:
        return _outcome("diverged", config, progress, None, world)
    if config.measures != Measures() and progress.step > begun_at:
        # Whoever is stopped while measuring need not train the last stretch again.
        checkpoint.save(folder.checkpoints_path, *state, progress, world)
    save_weights(folder.model_path, model, world)
    measures = measures or evaluate(subject, corpus, config, world)
    outcome = _outcome("done", config, progress, measures, world)
    kept = None if subject.sharded else activation_bytes(subject, config)
    return replace(outcome, activation_bytes=kept)


def _step(
    subject: Trainee,
    optimizer: torch.optim.Optimizer,
    corpus: Corpus,
    config: CellConfig,
    step: int,
    world: World,
) -> tuple[float, float]:
    """Forward, backward and update; mean loss (nats per token) and gradient norm before clipping.

    Each micro-batch adds its sum over tokens divided by the whole batch's count, so that neither
    its size nor the number of ranks matters.
    """
    tokens = batch(corpus, config.seed, step, config.batch_size, config.sequence_length)
    ids_BT = torch.from_numpy(tokens)
    if subject.device.type == "cuda":
        ids_BT = ids_BT.pin_memory()  # else a copy would wait for what the device still has to do
    parts = micro_batches(ids_BT, config.micro_batch_size, world)
    loss = torch.zeros((), dtype=torch.float64, device=subject.device)
    optimizer.zero_grad()
    for place, (micro, weight) in enumerate(parts, 1):
        with subject.averaging(last=place == len(parts)):
            total = subject.summed_nll(micro.to(subject.device, non_blocking=True))
            mean = total * weight / config.tokens_per_step
            # Ranks average their gradients, and those of a sum are wanted.
            (mean * world.num).backward()
        loss += mean.detach()
    if step == 0:
        assert_each_has_gradient(subject.model)
    norm = torch.nn.utils.clip_grad_norm_(subject.model.parameters(), config.optimizer.clip)
    grad_norm = whole(norm).item()
    mean_loss = world.sums(loss.item())[0]
    if isfinite(mean_loss) and isfinite(grad_norm):
        optimizer.step()
    return mean_loss, grad_norm


def micro_batches(ids_BT: Tensor, size: int, world: World) -> list[tuple[Tensor, float]]:
    """This rank's share of a batch, at most `size` sequences at a time, each with its weight.

    Every rank has the same number of them, for what is sharded is gathered by all at once: who has
    fewer sequences ends with one of weight zero.
    """
    num = ceil(ceil(len(ids_BT) / world.num) / size)
    own = [part for part in ids_BT.tensor_split(world.num)[world.rank].split(size) if len(part)]
    return [(part, 1.0) for part in own] + [(ids_BT[:1], 0.0)] * (num - len(own))


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
    world: World,
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
        progress.device_seconds,
        int(world.largest(peak_memory_bytes(world.device(config.device)))),
    )
