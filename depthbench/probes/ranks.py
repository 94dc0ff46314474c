"""Ranks of matrices that noise cannot fill."""

import torch
from torch import Tensor


def effective_rank(matrix: Tensor) -> Tensor:
    """`exp(H(p))`, `p = σ/Σσ`: (…, rows, columns) → (…). The identity has m, a uniform matrix 1."""
    singular = torch.linalg.svdvals(matrix.double())
    p = singular / singular.sum(-1, keepdim=True)
    rank: Tensor = torch.special.entr(p).sum(-1).exp()
    return rank


def stable_rank(matrix: Tensor) -> Tensor:
    """`‖M‖_F² / ‖M‖₂²`: (…, rows, columns) → (…)."""
    squared = torch.linalg.svdvals(matrix.double()).square()
    rank: Tensor = squared.sum(-1) / squared.amax(-1)
    return rank
