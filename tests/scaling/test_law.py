"""The law against its formula, written out."""

import math

import numpy as np
import pytest

from depthbench.errors import InputError
from depthbench.inputs import validated
from depthbench.scaling import Law, compute
from tests.scaling.kit import G, law_of, plain_g


@pytest.mark.parametrize("form", G)
def test_no_loop_is_worth_one(form) -> None:
    assert law_of(form).g_at(1, 1) == 1.0


def test_full_loops_rise_to_their_limit_with_diminishing_returns() -> None:
    law = law_of()
    full = law.g_at(r := np.array([1, 2, 4, 8, 16, 1e6, 1e12]), r)
    gain_a_loop = np.diff(full) / np.diff(r)
    assert np.all(gain_a_loop > 0)
    assert np.all(np.diff(gain_a_loop) < 0)
    assert full[-1] == pytest.approx(math.e**1.06, rel=1e-9)
    assert full[4] < math.e**1.06 * 0.98


def test_more_of_the_loops_backward_is_worth_more_and_truncation_less() -> None:
    law = law_of()
    by_backward = law.g_at(8, np.arange(1, 9))
    assert np.all(np.diff(by_backward) > 0)
    assert by_backward[0] < law.g_at(8, 8) > law.g_at(8, 4)
    assert law.g_at(8, 2) == pytest.approx(plain_g(8, 2, 0.237, 1.022, 1.06), rel=1e-14)


def test_untuned_loops_may_be_worth_less_than_none() -> None:
    assert law_of(c=-0.3).g_at(4, 4) == pytest.approx(plain_g(4, 4, 0.237, 1.022, -0.3))
    assert law_of(c=-0.3).g_at(4, 4) < 1


def test_iso_depth_is_a_power_and_silent_about_truncation() -> None:
    law = law_of("iso-depth")
    assert law.g_at(4, 4) == pytest.approx(4**0.459)
    with pytest.raises(InputError, match="truth says nothing about T = 4, B = 2"):
        law.g_at(4, 2)


def test_free_g_knows_its_cells_only() -> None:
    law = law_of("free")
    assert law.g_at([2, 4, 1], [2, 2, 1]).tolist() == pytest.approx([1.5, 1.7, 1.0])
    with pytest.raises(InputError, match="T = 4, B = 4"):
        law.g_at(4, 4)


def test_loss_and_compute_by_hand() -> None:
    law = law_of("iso-depth", phi=0.5)
    # g(4, 4) = 2, so that 1M + 2 · 1.5M parameters count; A·N^-α is 1.3 at 1M, B_D·D^-β at 2M.
    expected = 1.57 + 1.3 * 4**-0.199 + 1.3 * 10**-0.369
    assert law.loss(1e6, 1.5e6, 4, 4, 20e6) == pytest.approx(expected, rel=1e-12)
    # 2 FLOPs a parameter and use forward, 4 backward; three loops run and one is passed back.
    per_token = 1e6 * (2 + 4) + 1.5e6 * (3 * 2 + 1 * 4)
    assert compute(1e6, 1.5e6, 3, 1, 7.0) == 7 * per_token
    assert compute(1e6, 1.5e6, 1, 1, 7.0) == 6 * 2.5e6 * 7


def test_a_law_with_constants_of_another_form_is_refused() -> None:
    document = law_of().model_dump() | {"g": {"phi": 0.4}}
    with pytest.raises(InputError, match="exponential has the constants p, q, c; given: phi"):
        validated(Law, document, "law.json")
    with pytest.raises(InputError, match="fitted_rang"):
        validated(Law, law_of().model_dump() | {"fitted_rang": {}}, "law.json")
