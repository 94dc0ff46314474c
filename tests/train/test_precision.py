"""Weights in bf16, for those who want the memory of it: what they are, and what is lost."""

import pytest
import torch
from safetensors.torch import load_file

import residuals
from depthbench.folder import read_metrics
from depthbench.train.optimizer import build_optimizer
from depthbench.train.parallel import trainee
from depthbench.train.ranks import ALONE
from depthbench.train.trainer import train


@pytest.mark.parametrize("design", [design.name for design in residuals.all_designs()])
def test_every_design_trains_on_bf16_weights(design, make_config, corpus, make_cell) -> None:
    """Near the fp32 run at first, with every weight on the grid of bf16."""
    losses = {}
    for precision in ("fp32", "paper_bf16"):
        config = make_config(design, steps=3, learning_rate=1e-3, precision=precision)
        folder = make_cell(config, precision)
        assert train(config, folder, corpus, checkpoint_seconds=1e9).status == "done"
        losses[precision] = [r["loss"] for r in read_metrics(folder.metrics_path) if "loss" in r]
    assert losses["paper_bf16"] != losses["fp32"]
    assert losses["paper_bf16"] == pytest.approx(losses["fp32"], rel=1e-2)
    assert {t.dtype for t in load_file(folder.model_path).values()} == {torch.bfloat16}


def test_moments_are_bf16_and_a_small_decay_is_lost(make_config, corpus, make_cell) -> None:
    """A factor of 1 - 1e-4 is below half a step of bf16's 2^-8: nothing moves. In fp32 it does."""
    moved = {}
    for precision in ("fp32", "paper_bf16"):
        subject = trainee(make_config(precision=precision), ALONE)
        optimizer = build_optimizer(subject.model, make_config(learning_rate=1e-3).optimizer)
        weight = subject.model.head.weight
        before = weight.detach().clone()
        for parameter in subject.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        assert optimizer.state[weight]["exp_avg"].dtype == weight.dtype
        moved[precision] = not torch.equal(weight, before)
    assert moved == {"fp32": True, "paper_bf16": False}
