"""How exactly kernels compute: bit for bit again, and without shortcuts in products."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


@contextmanager
def deterministic(on: bool) -> Iterator[None]:
    """With `on`, the same inputs give the same bits on the same machine; what was set comes back.

    An operation that has no such form raises `RuntimeError`. SDPA and flash-attn take the slower
    backward pass that adds in a fixed order. To be entered before the first product on a GPU:
    cuBLAS reads its part once.
    """
    if not on:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    workspace, cudnn = os.environ.get(_CUBLAS), torch.backends.cudnn
    flags = cudnn.deterministic, cudnn.benchmark
    # Fixed workspaces: else what a product adds up first depends on the streams that run.
    os.environ.setdefault(_CUBLAS, ":4096:8")
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        cudnn.deterministic, cudnn.benchmark = flags
        if workspace is None:
            del os.environ[_CUBLAS]


def full_products() -> None:
    """fp32 products are fp32, and sums of bf16 products too, whatever the environment has set.

    Containers of GPU vendors set TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, with which fp32 keeps 10 bits.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
