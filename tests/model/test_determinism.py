"""The switch for kernels that repeat bit for bit."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest
import torch

import residuals
from depthbench.model.build import build_model
from depthbench.model.determinism import deterministic
from tests.kit import cell_config
from tests.model.devices import DEVICES

VARIABLE = "CUBLAS_WORKSPACE_CONFIG"


def without_deterministic_form() -> None:
    torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))


def state() -> tuple[object, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        cudnn.deterministic,
        cudnn.benchmark,
        os.environ.get(VARIABLE),
    )


def test_an_operation_without_a_deterministic_form_raises() -> None:
    without_deterministic_form()
    with deterministic(True), pytest.raises(RuntimeError, match="deterministic"):
        without_deterministic_form()
    without_deterministic_form()


def test_what_is_set_and_that_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = state()
    with deterministic(False):
        assert state() == before
    with deterministic(True):
        assert state() == (True, False, True, False, ":4096:8")
    assert state() == before
    with suppress(ZeroDivisionError), deterministic(True):
        raise ZeroDivisionError
    assert state() == before


def test_a_choice_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, ":16:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with deterministic(True):
            assert os.environ[VARIABLE] == ":16:8"
        assert os.environ[VARIABLE] == ":16:8"
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_products_are_full_even_in_a_container_that_says_otherwise() -> None:
    """In a process of its own: torch reads the variable when it is imported."""
    code = """
import torch
from depthbench.model.determinism import full_products
matmul = torch.backends.cuda.matmul
print(torch.get_float32_matmul_precision(), matmul.allow_tf32)
full_products()
print(torch.get_float32_matmul_precision(), matmul.allow_tf32)
print(matmul.allow_bf16_reduced_precision_reduction)
"""
    environment = os.environ | {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["high", "True", "highest", "False", "False"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("design", residuals.BENCHMARK)
def test_every_design_trains_and_repeats_bit_for_bit(design: str, device: str) -> None:
    shape = {"layers": 2, "d_model": 32, "ffn": 16, "heads": 2}
    config = cell_config(design, device=device, shape=shape)
    ids = torch.randint(0, 23, (2, 9), generator=torch.Generator().manual_seed(0)).to(device)
    with deterministic(True):
        runs = []
        for _ in range(2):
            model = build_model(config)
            with torch.autocast(device, torch.bfloat16):
                loss = model.summed_nll(ids[:, :-1], ids[:, 1:])
            runs.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for one, two in zip(*runs, strict=True):
        assert torch.equal(one, two)
