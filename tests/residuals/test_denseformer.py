"""DenseFormer in closed form, float64."""

import pytest
import torch

import residuals
from tests.residuals.kit import (
    drive,
    make_design,
    make_model,
    perturb,
    randn,
    random_branches,
    relative,
    saved_bytes,
    shape_of,
    stack_of,
    tokens_of,
)

D = 16


@torch.no_grad()
def test_a_row_weighs_the_embedding_and_every_block_output() -> None:
    """Branches that add a constant each: X_1 = x + 3, Y_1 = 2x + 5X_1, X_2 = Y_1 + 7, and so on."""
    design = make_design("denseformer", 2, D)
    design.static.copy_(torch.tensor([2.0, 5.0, 11.0, 13.0, 17.0]))
    x = randn(1, 2, D)
    last, _, states = drive(design, x, lambda k, _: torch.full_like(x, [1.0, 2.0, 3.0, 4.0][k]))
    X_1 = x + 3
    Y_1 = 2 * x + 5 * X_1
    X_2 = Y_1 + 7
    assert relative(design.depth_state(2, states[2]), Y_1) < 1e-14
    assert relative(last, 11 * x + 13 * X_1 + 17 * X_2) < 1e-14


@pytest.mark.parametrize(
    ("dilation", "period", "sources"),
    [
        (1, 1, {1: [0, 1], 2: [0, 1, 2], 3: [0, 1, 2, 3], 4: [0, 1, 2, 3, 4]}),
        (2, 1, {1: [1], 2: [0, 2], 3: [1, 3], 4: [0, 2, 4]}),
        (4, 1, {1: [1], 2: [2], 3: [3], 4: [0, 4]}),
        (1, 3, {3: [0, 1, 2, 3]}),
        (2, 2, {2: [0, 2], 4: [0, 2, 4]}),
        (1, 5, {}),
    ],
)
def test_dilation_and_period_choose_the_weights(
    dilation: int, period: int, sources: dict[int, list[int]]
) -> None:
    options = {"dilation": dilation, "period": period}
    design = residuals.build("denseformer", stack_of(shape_of(4, D)), **options)
    assert {i: list(js) for i, js in design.sources.items()} == sources
    num_weights = sum(map(len, sources.values()))
    assert design.num_extra_params() == num_weights
    assert design.routing_flops().mixing == 2 * num_weights * D


def test_the_paper_counts_d_times_d_plus_3_over_2_weights() -> None:
    for num_blocks in (1, 12, 48):
        design = residuals.build("denseformer", stack_of(shape_of(num_blocks, D)))
        assert design.num_extra_params() == num_blocks * (num_blocks + 3) // 2


@torch.no_grad()
def test_a_block_left_out_is_the_identity() -> None:
    """The same as a block whose branches add nothing: the sums after it stay."""
    design = make_design("denseformer", 3, D)
    perturb(design, 0.5)
    branches = random_branches(6, D)
    x = randn(1, 2, D)

    def silent(k: int, h: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(h) if k in (2, 3) else branches(k, h)

    expected, _, _ = drive(design, x, silent)
    state = drive(design, x, branches)[2][2]
    state = design.skip(2, state)
    for k in (4, 5):
        h, carry = design.read(k, k, state)
        state = design.write(k, k, carry, branches(k, h))
    assert relative(design.finish(state), expected) < 1e-14


def test_sources_are_kept_once() -> None:
    """Activations of 8, 16 and 32 blocks, not their squares."""

    def kept(num_blocks: int) -> int:
        model = make_model("denseformer", shape_of(num_blocks, 64), dtype=torch.float32, eps=1e-6)
        with saved_bytes(model) as total:
            loss = model.summed_nll(tokens_of(1, 16), tokens_of(1, 16))
        loss.backward()
        return total[0]

    few, some, many = map(kept, (8, 16, 32))
    assert some < 2.2 * few
    assert many < 2.2 * some


@pytest.mark.parametrize("option", ["dilation", "period"])
def test_less_than_a_block_is_refused(option: str) -> None:
    with pytest.raises(residuals.DesignError, match=f"{option} = 0 .*at least 1 block"):
        residuals.build("denseformer", stack_of(shape_of()), **{option: 0})
