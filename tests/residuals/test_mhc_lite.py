"""mHC-lite in closed form, float64."""

from itertools import permutations
from math import exp

import pytest
import torch

import residuals
from residuals import Design
from tests.residuals.kit import make_design, perturb, randn, relative, shape_of, stack_of

D = 8


def generic(streams: int = 4) -> Design:
    design = make_design("mhc-lite", 2, D, streams=streams)
    perturb(design, 2.0)
    return design


@pytest.mark.parametrize("streams", [1, 2, 3, 4, 5])
@torch.no_grad()
def test_mixing_is_doubly_stochastic_exactly(streams: int) -> None:
    design = generic(streams)
    H = randn(2, 50, streams, D)
    for k in range(4):
        mixing = design.mixing(k, k, (H,))
        assert mixing.shape == (2, 50, streams, streams)
        assert mixing.min() >= 0
        for axis in (-1, -2):
            assert (mixing.sum(axis) - 1).abs().max() < 1e-12
    if streams > 1:
        assert mixing.std() > 0.1  # and far from the mean of all permutations


@torch.no_grad()
def test_every_permutation_can_be_had_and_carries_streams_as_it_says() -> None:
    H = randn(1, 1, 3, D)
    seen = set()
    for r in range(6):
        design = make_design("mhc-lite", 1, D, streams=3)
        design.routing[0].bias[6:] = -60.0
        design.routing[0].bias[6 + r] = 60.0
        mixing = design.mixing(0, 0, (H,))[0, 0]
        order = mixing.argmax(-1).tolist()
        seen.add(tuple(order))
        x, carry = design.read(0, 0, (H,))
        (carried,) = design.write(0, 0, carry, torch.zeros_like(x))
        assert relative(carried, H[:, :, order]) < 1e-12
        if r == 0:
            assert order == [0, 1, 2]
    assert seen == set(permutations(range(3)))


@torch.no_grad()
def test_it_starts_near_the_identity() -> None:
    """The identity's logit is 8 above 23 others; 6 of the 24 leave an entry beside the diagonal."""
    design = make_design("mhc-lite", 1, D)
    mixing = design.mixing(0, 0, (randn(1, 2, 4, D),))
    beside = 6 * exp(-8) / (1 + 23 * exp(-8))
    expected = torch.full((4, 4), beside, dtype=torch.float64)
    expected.fill_diagonal_(1 - 3 * beside)
    torch.testing.assert_close(mixing, expected.expand(1, 2, 4, 4), rtol=1e-12, atol=1e-15)


@torch.no_grad()
def test_without_branches_the_mean_over_streams_is_conserved() -> None:
    """Through many sublayers, where 20 Sinkhorn iterations leave an error that adds up."""
    design = generic()
    H = randn(1, 5, 4, D)
    state = (H,)
    for visit in range(100):
        x, carry = design.read(visit % 4, visit % 4, state)
        state = design.write(visit % 4, visit % 4, carry, torch.zeros_like(x))
    assert relative(design.finish(state), H.mean(-2)) < 1e-11


def test_parameters_and_flops_by_hand() -> None:
    design = residuals.build("mhc-lite", stack_of(shape_of(1, D)))
    rows = 4 + 4 + 24
    assert design.num_extra_params() == 2 * (4 * D * rows + rows + 3)
    flops = design.routing_flops()
    # A token and sublayer: the logits, 24 matrices of 16 entries, 5 sums of 4 streams, 4 written.
    assert flops.matmul == 2 * (2 * rows * 4 * D + 2 * 24 * 16 + 2 * 5 * 4 * D)
    assert flops.mixing == 2 * 2 * 4 * D


@pytest.mark.parametrize("streams", [0, 7])
def test_streams_with_no_or_too_many_permutations_are_refused(streams: int) -> None:
    with pytest.raises(residuals.DesignError, match=f"streams = {streams}.*give at"):
        residuals.build("mhc-lite", stack_of(shape_of()), streams=streams)
