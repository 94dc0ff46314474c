"""The loop: gradients, clipping, rates, the three assertions, divergence, precision."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from depthbench.config import CellConfig
from depthbench.data import batch
from depthbench.errors import InputError
from depthbench.folder import CellFolder, read_metrics
from depthbench.model.decoder import build_decoder
from depthbench.train import trainer
from depthbench.train.objective import Trainee
from depthbench.train.parallel import trainee
from depthbench.train.trainer import train
from residuals import DesignError, load_plugin, registry

PLUGIN = '''
import torch
from torch import nn
from residuals import ROUTING_STATIC, WEIGHT, RoutingFlops, register
from residuals.parameters import constant
from residuals.pre_ln import PreLN

@register
class Planted(PreLN):
    """Pre-LN with a fault."""

    name = "planted"
    title = "Planted"

    def __init__(self, stack):
        super().__init__(stack)
        {fault}

    def finish(self, state):
        return state[0] * {factor}
'''


class Seen:
    """The model and optimiser that a run builds, and the weights it started from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype | None = None) -> None:
        build_optimizer = trainer.build_optimizer

        def built(*arguments: Any) -> Trainee:
            subject = trainee(*arguments)
            self.model = subject.model.to(dtype)
            self.start = {n: p.detach().clone() for n, p in self.model.named_parameters()}
            return subject

        def optimizer(*arguments: Any) -> torch.optim.AdamW:
            self.optimizer = build_optimizer(*arguments)
            return self.optimizer

        monkeypatch.setattr(trainer, "trainee", built)
        monkeypatch.setattr(trainer, "build_optimizer", optimizer)

    def gradients(self) -> dict[str, torch.Tensor]:
        return {n: p.grad for n, p in self.model.named_parameters() if p.grad is not None}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Registers a design of this name with one fault, for the length of a test."""

    def plant(fault: str, factor: str = "1.0") -> None:
        monkeypatch.setattr(registry, "_designs", dict(registry._designs))
        file = tmp_path / "planted.py"
        file.write_text(PLUGIN.format(fault=fault, factor=factor))
        load_plugin(file)

    return plant


def one_step(config: CellConfig, corpus, make_cell, name: str = "cell") -> dict[str, Any]:
    folder = make_cell(config, name)
    train(config, folder, corpus, checkpoint_seconds=1e9)
    return read_metrics(folder.metrics_path)[0]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)], ids=["fp64", "fp32"]
)
def test_the_micro_batch_changes_neither_loss_nor_gradients(
    dtype, tolerance, make_config, corpus, make_cell, monkeypatch
) -> None:
    """All equal the gradients of mean cross-entropy over whole logits."""
    unclipped = {"learning_rate": 1e-3, "clip": 1e9}
    seen = Seen(monkeypatch, dtype)
    plain = make_config(steps=1, optimizer=unclipped)
    model = build_decoder(plain.shape, 300, plain.design, plain.norm_eps, plain.seed).to(dtype)
    ids = torch.from_numpy(batch(corpus, plain.seed, 0, 4, 16))
    logits = model.logits(ids[:, :-1])
    expected_loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    expected_loss.backward()
    for size in (1, 2, 4):
        config = make_config(steps=1, optimizer=unclipped, micro_batch_size=size)
        record = one_step(config, corpus, make_cell, f"micro-{size}")
        assert record["loss"] == pytest.approx(expected_loss.item(), rel=tolerance)
        gradients = seen.gradients()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(
                gradients[name], parameter.grad, rtol=10 * tolerance, atol=tolerance, msg=name
            )
        norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters()))
        assert record["grad_norm"] == pytest.approx(norm, rel=10 * tolerance)


def test_gradients_of_one_step_are_gone_in_the_next(
    make_config, corpus, make_cell, monkeypatch
) -> None:
    seen = Seen(monkeypatch)
    still = {"learning_rate": 1e-30, "clip": 1e9, "weight_decay": 0.0}
    config = make_config(steps=2, optimizer=still, micro_batch_size=2)
    one_step(config, corpus, make_cell)
    model = build_decoder(config.shape, 300, config.design, config.norm_eps, config.seed)
    ids = torch.from_numpy(batch(corpus, config.seed, 1, 4, 16))
    logits = model.logits(ids[:, :-1])
    F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(seen.gradients()[name], parameter.grad, rtol=1e-5, atol=1e-6)


def test_gradients_are_clipped_to_the_recipes_norm(
    make_config, corpus, make_cell, monkeypatch
) -> None:
    seen = Seen(monkeypatch)
    clip = 0.01
    config = make_config(steps=1, optimizer={"learning_rate": 1e-3, "clip": clip})
    record = one_step(config, corpus, make_cell)
    assert record["grad_norm"] > 2 * clip  # recorded before clipping
    total = sum(g.double().square().sum().item() for g in seen.gradients().values())
    assert math.sqrt(total) == pytest.approx(clip, rel=1e-4)
    for parameter in seen.model.parameters():
        first_moment = seen.optimizer.state[parameter]["exp_avg"]
        torch.testing.assert_close(first_moment, 0.1 * parameter.grad)


def test_the_rate_that_is_recorded_is_the_rate_that_moves(
    make_config, corpus, make_cell, monkeypatch
) -> None:
    """Closed form of a first step, half way up: decay, then rate · g / (|g| + ε)."""
    seen = Seen(monkeypatch)
    folder = make_cell(make_config(steps=20, learning_rate=0.04))
    asked = iter(range(9))
    train(folder.config(), folder, corpus, lambda: next(asked) == 1)
    assert read_metrics(folder.metrics_path)[-1]["learning_rate"] == 0.02
    for name, parameter in seen.model.named_parameters():
        decay = 0.0 if name.endswith("gain") else 0.1
        g = parameter.grad.double()
        moved = seen.start[name].double() * (1 - 0.02 * decay) - 0.02 * g / (g.abs() + 1e-8)
        torch.testing.assert_close(parameter.detach().double(), moved, rtol=1e-5, atol=1e-7)


def test_rates_follow_the_schedule(make_config, corpus, make_cell) -> None:
    folder = make_cell(make_config(steps=20, learning_rate=0.01))
    train(folder.config(), folder, corpus)
    rates = [r["learning_rate"] for r in read_metrics(folder.metrics_path) if "loss" in r]
    assert rates[:2] == pytest.approx([0.005, 0.01])  # two steps of warm-up
    assert rates[-1] == pytest.approx(0.001)
    assert rates[10] == pytest.approx(0.001 + 0.009 * (1 + math.cos(math.pi / 2)) / 2)


def test_each_step_has_its_own_tokens(make_config, corpus, make_cell, monkeypatch) -> None:
    asked = []

    def recording(*arguments: Any) -> Any:
        asked.append(arguments[1:])
        return batch(*arguments)

    monkeypatch.setattr(trainer, "batch", recording)
    folder = make_cell(make_config(steps=5, seed=8))
    train(folder.config(), folder, corpus)
    assert asked == [(8, step, 4, 16) for step in range(5)]


@pytest.mark.parametrize(("points", "marks"), [(1, [7]), (3, [3, 5, 7]), (100, range(1, 8))])
def test_evaluation_points_are_even_and_the_last_is_the_end(
    points, marks, make_config, corpus, make_cell
) -> None:
    folder = make_cell(make_config(steps=7, evaluation={"tokens": 32, "points": points}))
    train(folder.config(), folder, corpus)
    found = [r for r in read_metrics(folder.metrics_path) if "evaluation" in r]
    assert [r["step"] for r in found] == list(marks)
    assert [r["tokens"] for r in found] == [64 * step for step in marks]


def test_training_learns(make_config, corpus, make_cell) -> None:
    """60 steps bring the loss from a uniform guess to below the text's own unigram entropy."""
    folder = make_cell(make_config(steps=60))
    outcome = train(folder.config(), folder, corpus)
    first = read_metrics(folder.metrics_path)[0]["loss"]
    assert first == pytest.approx(math.log(300), abs=0.05)
    assert outcome.measures is not None
    assert outcome.measures["loss"] < corpus.unigram_entropy
    assert outcome.tokens_per_second == pytest.approx(64 / outcome.step_seconds)
    assert outcome.peak_memory_bytes > 50 * 2**20


def test_an_unused_parameter_is_named(planted, make_config, corpus, make_cell) -> None:
    planted('self.declare("spare", (3,), WEIGHT, constant(0.0))')
    folder = make_cell(make_config("planted"))
    with pytest.raises(DesignError, match=r"design\.spare"):
        train(folder.config(), folder, corpus)
    assert read_metrics(folder.metrics_path) == []


def test_a_parameter_used_with_gradient_zero_is_fine(
    planted, make_config, corpus, make_cell
) -> None:
    planted('self.declare("idle", (1,), ROUTING_STATIC, constant(1.0))', "(1 + 0 * self.idle)")
    folder = make_cell(make_config("planted", steps=2))
    assert train(folder.config(), folder, corpus).status == "done"


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("self.scale = nn.Parameter(torch.ones(1))", r"design\.scale"),
        ("self.mix = nn.Linear(2, 2, bias=False)", r"design\.mix\.weight"),
    ],
)
def test_an_undeclared_parameter_is_named(
    fault, name, planted, make_config, corpus, make_cell
) -> None:
    planted(fault)
    folder = make_cell(make_config("planted"))
    with pytest.raises(DesignError, match=name):
        train(folder.config(), folder, corpus)


def test_a_parameter_missing_from_the_optimiser_is_named(
    make_config, corpus, make_cell, monkeypatch
) -> None:
    real = trainer.build_optimizer

    def forgetful(*arguments: Any) -> torch.optim.AdamW:
        optimizer = real(*arguments)
        optimizer.param_groups[0]["params"].pop()
        return optimizer

    monkeypatch.setattr(trainer, "build_optimizer", forgetful)
    folder = make_cell(make_config())
    with pytest.raises(DesignError, match=r"missing \['\w+"):
        train(folder.config(), folder, corpus)
    assert not folder.metrics_path.exists()


def test_a_buffer_is_refused(planted, make_config, corpus, make_cell) -> None:
    """Built on the meta device, its values would be whatever the memory held."""
    planted('self.register_buffer("factor", torch.full((1,), 0.5))', "self.factor")
    folder = make_cell(make_config("planted", steps=1))
    with pytest.raises(DesignError, match=r"design\.factor"):
        train(folder.config(), folder, corpus)


def strictly(text: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} in JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("rate", [1e25, 1e8, 30.0])
def test_an_absurd_rate_ends_as_diverged_with_its_step(
    rate, make_config, corpus, make_cell
) -> None:
    """Infinite, huge and merely bad losses; nothing that is not a number is written."""
    folder = make_cell(make_config(learning_rate=rate))
    outcome = train(folder.config(), folder, corpus, checkpoint_seconds=0)
    assert outcome.status == "diverged"
    assert 1 < outcome.step < 40
    assert outcome.measures is None
    assert not folder.model_path.exists()
    records = [strictly(line) for line in folder.metrics_path.read_text().splitlines()]
    assert all(record["step"] <= outcome.step for record in records)
    # No checkpoint of the step that diverged, and sound numbers in those before.
    for path in folder.checkpoints_path.iterdir():
        assert int(path.stem.removeprefix("step-")) < outcome.step
        for file in path.glob("*.safetensors"):
            assert all(t.isfinite().all() for t in load_file(file).values())


def test_a_loss_that_is_finite_but_no_longer_training_has_diverged(
    make_config, corpus, make_cell, monkeypatch
) -> None:
    """More than twice a uniform guess after the warm-up; before it, it may still come back."""
    config = make_config(steps=20)
    losses = {1: 2.1, 9: 1.9, 12: 2.1}  # step from 0 → in units of ln V; warm-up ends with step 1

    def step(*arguments: Any) -> tuple[float, float]:
        return losses.get(arguments[4], 0.5) * math.log(300), 1.0

    monkeypatch.setattr(trainer, "_step", step)
    outcome = train(config, make_cell(config), corpus)
    assert (outcome.status, outcome.step) == ("diverged", 13)


def test_weights_that_overflow_in_the_last_update_are_no_result(
    make_config, corpus, make_cell, monkeypatch
) -> None:
    real = trainer._step

    def step(subject: Trainee, *rest: Any) -> tuple[float, float]:
        found = real(subject, *rest)
        if rest[3] == 5:
            with torch.no_grad():
                subject.model.head.weight[0, 0] = math.inf
        return found

    monkeypatch.setattr(trainer, "_step", step)
    config = make_config(steps=6, evaluation={"tokens": 32, "points": 1})
    folder = make_cell(config)
    outcome = train(config, folder, corpus, checkpoint_seconds=0)
    assert (outcome.status, outcome.step, outcome.measures) == ("diverged", 6, None)
    assert not folder.model_path.exists()
    for line in folder.metrics_path.read_text().splitlines():
        strictly(line)


def test_bf16_keeps_masters_and_moments_in_fp32(
    make_config, corpus, make_cell, monkeypatch
) -> None:
    seen = Seen(monkeypatch)
    wide, narrow = (
        make_cell(make_config(steps=8), "wide"),
        make_cell(make_config(steps=8, precision="bf16"), "narrow"),
    )
    losses = {}
    for folder in (wide, narrow):
        assert train(folder.config(), folder, corpus, checkpoint_seconds=1e9).status == "done"
        losses[folder] = [r["loss"] for r in read_metrics(folder.metrics_path) if "loss" in r]
    assert losses[narrow] != losses[wide]
    assert losses[narrow] == pytest.approx(losses[wide], rel=5e-3)
    for name, parameter in seen.model.named_parameters():
        state = seen.optimizer.state[parameter]
        tensors = (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"])
        assert {t.dtype for t in tensors} == {torch.float32}, name
    saved = load_file(narrow.model_path)
    assert {t.dtype for t in saved.values()} == {torch.float32}
    # Values between those of bf16: the masters were never rounded.
    head = saved["head.weight"]
    assert not torch.equal(head, head.bfloat16().float())


def test_too_little_text_is_refused_before_the_first_step(
    make_config, corpus, make_cell, monkeypatch
) -> None:
    """A validation stream shorter than a window shows at the start, not after the last step."""
    config = make_config(evaluation={"tokens": 32, "points": 1})
    short = replace(corpus, validation={"tiny": np.zeros(16, dtype=np.uint16)})
    steps = count_steps(monkeypatch)
    with pytest.raises(InputError, match="sequence_length = 16"):
        train(config, make_cell(config), short)
    assert steps == []
    few = replace(corpus, train=corpus.train[:60])
    with pytest.raises(InputError, match="3 windows of 16 tokens"):
        train(config, CellFolder(make_cell(config, "few").path), few)


def count_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    steps: list[int] = []
    real = trainer._step

    def step(*arguments: Any) -> tuple[float, float]:
        steps.append(arguments[4])
        return real(*arguments)

    monkeypatch.setattr(trainer, "_step", step)
    return steps
