"""Value residual in closed form, float64."""

import pytest
import torch
from torch import Tensor

import residuals
from residuals import Design
from tests.residuals.kit import (
    make_design,
    make_model,
    perturb,
    randn,
    relative,
    shape_of,
    stack_of,
    tokens_of,
)

K = 3


class Seen:
    """Attention that passes on the values it is given."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return v


def attended(design: Design, k: int, carry: tuple[Tensor, ...], v: Tensor) -> Tensor:
    return design.attend(k, k, carry, v, v, v, Seen())[0]


def test_values_are_mixed_with_those_of_the_first_block() -> None:
    design = make_design("value-residual", K)
    with torch.no_grad():
        design.scales.copy_(torch.tensor([[0.3, 0.9], [2.0, -1.0]]))
    x, *values = (randn(1, 2, 2, 8, seed=s) for s in range(4))
    state = (x.flatten(2),)
    _, state = design.attend(0, 0, state, x, x, values[0], Seen())
    assert torch.equal(state[1], values[0])
    assert torch.equal(attended(design, 0, state[:1], values[0]), values[0])
    assert relative(attended(design, 2, state, values[1]), 0.3 * values[0] + 0.9 * values[1]) < 1e-7
    assert relative(attended(design, 4, state, values[2]), 2 * values[0] - values[2]) < 1e-7


def test_identity_variant_is_where_the_learnable_one_starts() -> None:
    learned = make_model("value-residual", shape_of(K))
    fixed = make_model("value-residual", shape_of(K), learnable=False)
    tokens = tokens_of()
    assert torch.equal(learned.logits(tokens), fixed.logits(tokens))
    assert learned.design.scales.tolist() == [[0.5, 0.5]] * (K - 1)
    assert not [name for name, _ in fixed.named_parameters() if "scales" in name]


def test_zero_and_one_are_pre_ln_whatever_the_weights() -> None:
    model = make_model("value-residual", shape_of(K), learnable=False, first=0.0, own=1.0)
    base = make_model("pre-ln", shape_of(K))
    perturb(base)
    model.load_state_dict(base.state_dict())
    tokens = tokens_of()
    assert relative(model.logits(tokens), base.logits(tokens)) < 1e-13


def test_a_first_block_left_out_leaves_its_place_to_the_next() -> None:
    """The next one's values are then V_1, and it mixes nothing."""
    design = make_design("value-residual", K)
    x, v = randn(1, 2, 16), randn(1, 2, 2, 8, seed=1)
    state = design.skip(0, (x,))
    o, carry = design.attend(2, 2, state, v, v, v, Seen())
    assert torch.equal(o, v)
    assert torch.equal(carry[1], v)


@pytest.mark.parametrize(("rounds", "rows", "mixed"), [(1, 2, 2), (4, 3, 11)])
def test_parameters_and_flops_by_hand(rounds: int, rows: int, mixed: int) -> None:
    """Two weights for every block that ever mixes; a weighted sum of two each time one does."""
    shape = shape_of(K, 32, heads=4, kv_heads=2)
    design = residuals.build("value-residual", stack_of(shape, rounds=rounds))
    assert design.num_extra_params() == 2 * rows
    flops = design.routing_flops()
    assert (flops.matmul, flops.mixing) == (0, mixed * 2 * 2 * 2 * 8)
