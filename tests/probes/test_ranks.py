"""Ranks and the fraction of late pairs, in closed form."""

from math import exp, inf, log, nan

import pytest
import torch

from depthbench.probes.late import late_fraction
from depthbench.probes.ranks import effective_rank, stable_rank
from tests.residuals.kit import randn


@pytest.mark.parametrize("m", [1, 2, 4, 7])
def test_ranks_of_identity_uniform_and_rotation(m: int) -> None:
    rotation, _ = torch.linalg.qr(randn(m, m))
    for rank in (effective_rank, stable_rank):
        for matrix in (torch.eye(m), 3 * torch.eye(m), rotation):
            assert rank(matrix).item() == pytest.approx(m, rel=1e-12)
        assert rank(torch.full((m, m), 1 / m)).item() == pytest.approx(1, rel=1e-12)
        assert rank(randn(m, 1) @ randn(1, m, seed=2)).item() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("r", [1, 2, 5])
def test_ranks_of_a_projector(r: int) -> None:
    basis, _ = torch.linalg.qr(randn(6, r))
    projector = basis @ basis.T
    assert effective_rank(projector).item() == pytest.approx(r, rel=1e-9)
    assert stable_rank(projector).item() == pytest.approx(r, rel=1e-9)


def test_ranks_of_given_singular_values() -> None:
    sigma = [4.0, 2.0, 1.0, 1.0]
    matrix = torch.diag(torch.tensor(sigma))
    entropy = -sum(s / 8 * log(s / 8) for s in sigma)
    assert effective_rank(matrix).item() == pytest.approx(exp(entropy))
    assert stable_rank(matrix).item() == pytest.approx((16 + 4 + 1 + 1) / 16)
    wide = torch.cat((matrix, torch.zeros(4, 9)), 1)
    assert effective_rank(wide).item() == pytest.approx(exp(entropy))


def test_ranks_of_a_batch_are_each_ones_own() -> None:
    batch = torch.stack((torch.eye(4), torch.full((4, 4), 0.25)))
    assert effective_rank(batch).tolist() == pytest.approx([4, 1])
    assert stable_rank(batch).tolist() == pytest.approx([4, 1])


def test_late_pairs_are_those_of_the_last_three_quarters() -> None:
    """Of 8 blocks the last six: 15 pairs."""
    score = [[None if j <= i else 0.0 for j in range(8)] for i in range(8)]
    score[0][7] = score[1][2] = 9.0  # block 0 and 1 are early
    assert late_fraction(score, 0.45) == 0
    score[2][3] = score[6][7] = 0.5
    score[2][7] = 0.45  # not above
    assert late_fraction(score, 0.45) == pytest.approx(2 / 15)
    assert late_fraction([[1.0] * 32 for _ in range(32)], 0.5) == 1


def test_late_pairs_of_stacks_too_short_for_any() -> None:
    assert late_fraction([[None]], 0.1) is None
    assert late_fraction([[None, 9.0], [None, None]], 0.1) is None
    assert late_fraction([[None, 0.0, 0.0], [None, None, 9.0], [None] * 3], 0.1) == 1


def test_what_is_not_a_number_hides_in_no_fraction() -> None:
    score = [[0.0] * 4 for _ in range(4)]
    score[1][2] = inf  # something where there was nothing
    assert late_fraction(score, 0.45) == pytest.approx(1 / 3)
    score[1][3] = nan
    assert late_fraction(score, 0.45) is None
