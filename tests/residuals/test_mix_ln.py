"""Mix-LN in closed form, float64."""

import pytest
import torch

import residuals
from tests.residuals.kit import make_model, perturb, randn, relative, shape_of, stack_of, tokens_of


@pytest.mark.parametrize(("share", "name"), [(0.0, "pre-ln"), (1.0, "post-ln")])
def test_ends_are_pre_ln_and_post_ln(share: float, name: str) -> None:
    model = make_model("mix-ln", shape_of(3), post_share=share)
    base = make_model(name, shape_of(3))
    perturb(base)
    model.load_state_dict(base.state_dict())
    tokens = tokens_of()
    assert torch.equal(model.logits(tokens), base.logits(tokens))


@pytest.mark.parametrize(
    ("num_blocks", "share", "num_post"),
    [(3, 0.25, 0), (4, 0.25, 1), (7, 0.25, 1), (12, 0.25, 3), (100, 0.29, 29), (10, 0.3, 3)],
)
def test_post_ln_comes_first(num_blocks: int, share: float, num_post: int) -> None:
    """What a post-normed sublayer reads is the stream; what it leaves has unit RMS."""
    design = residuals.build("mix-ln", stack_of(shape_of(num_blocks)), post_share=share)
    residuals.initialise(design, 0)
    design.double()
    x, y = 5 * randn(1, 1, 16), randn(1, 1, 16, seed=1)
    summed = (x + y) / (x + y).pow(2).mean().sqrt()
    for k in range(2 * num_blocks):
        read, carry = design.read(k, k, (x,))
        after = design.write(k, k, carry, y)[0]
        if k < 2 * num_post:
            assert torch.equal(read, x)
            assert relative(after, summed) < 1e-13
        else:
            assert relative(read, x / x.pow(2).mean().sqrt()) < 1e-13
            assert torch.equal(after, x + y)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_beyond_its_range_is_refused(share: float) -> None:
    with pytest.raises(residuals.DesignError, match=f"post_share = {share}.*from 0 to 1"):
        residuals.build("mix-ln", stack_of(shape_of()), post_share=share)
