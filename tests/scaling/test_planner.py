"""Plans against brute force on the law and the compute formula alone."""

import itertools
import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from depthbench.errors import InputError
from depthbench.scaling import Ask, Choice, Fixed, Law, Planner, compute, open_law, plan
from depthbench.scaling.exponents import growth_at_fixed_size
from tests.scaling.kit import SHARE, law_of

CALIBRATED = "truncate-or-not/calibrated"


@pytest.fixture(scope="module")
def law() -> Law:
    return open_law(CALIBRATED)


def loss_at(law: Law, share: float, C: float, T: float, B: float, N: float) -> float:
    """Loss of N parameters on the tokens that C pays for."""
    once, rec = (1 - share) * N, share * N
    return float(law.loss(once, rec, T, B, C / float(compute(once, rec, T, B, 1.0))))


def best_size(law: Law, share: float, C: float, T: float, B: float) -> tuple[float, float]:
    """Loss and N of the best split of C, by search over ln N."""
    found = minimize_scalar(
        lambda log_N: loss_at(law, share, C, T, B, math.exp(log_N)),
        bounds=(math.log(1e3), math.log(1e14)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(found.fun), math.exp(found.x)


def loops_of(choice: Choice) -> tuple[float, float]:
    return choice.T, choice.B


def compute_to_reach(law: Law, share: float, loss: float, T: float, B: float) -> float:
    return math.exp(
        brentq(lambda c: best_size(law, share, math.exp(c), T, B)[0] - loss, 20, 70, xtol=1e-10)
    )


@pytest.mark.parametrize(("T", "B"), [(1, 1), (8, 2), (3, 3)])
def test_best_size_and_tokens_against_a_search(T, B) -> None:
    law = law_of()
    choice = Planner(law).best(1e17, Fixed(T=T, B=B))
    loss, N = best_size(law, SHARE, 1e17, T, B)
    assert choice.loss == pytest.approx(loss, rel=1e-9)
    assert math.log(choice.N / N) == pytest.approx(0, abs=1e-3)
    once, rec = (1 - SHARE) * choice.N, SHARE * choice.N
    assert compute(once, rec, T, B, choice.D) == pytest.approx(1e17, rel=1e-12)
    assert choice.loss == pytest.approx(float(law.loss(once, rec, T, B, choice.D)), rel=1e-12)


@pytest.mark.parametrize(
    "fixed", [Fixed(), Fixed(N=3e7), Fixed(D=1e9), Fixed(T=6), Fixed(B=2), Fixed(N=3e7, T=5)]
)
def test_best_loops_against_all_of_them(fixed) -> None:
    law, losses = law_of(), {}
    for T, B in itertools.product(range(1, 17), repeat=2):
        if B <= T and fixed.T in (None, T) and fixed.B in (None, B):
            if fixed.D is not None:
                N = 1e19 / float(compute(1 - SHARE, SHARE, T, B, fixed.D))
                losses[T, B] = loss_at(law, SHARE, 1e19, T, B, N)
            elif fixed.N is not None:
                losses[T, B] = loss_at(law, SHARE, 1e19, T, B, fixed.N)
            else:
                losses[T, B] = best_size(law, SHARE, 1e19, T, B)[0]
    choice = Planner(law).best(1e19, fixed)
    assert loops_of(choice) == min(losses, key=lambda pair: losses[pair])
    assert choice.loss == pytest.approx(min(losses.values()), rel=1e-9)


@pytest.mark.parametrize("fixed", [Fixed(), Fixed(N=3e7), Fixed(T=6), Fixed(B=2), Fixed(N=1e9)])
def test_real_loops_against_a_fine_grid(fixed) -> None:
    law, planner = law_of(), Planner(law_of())
    choice = planner.best(1e19, fixed, whole=False)
    loops = np.geomspace(1, 16, 61)
    losses = [
        loss_at(law, SHARE, 1e19, T, B, fixed.N)
        if fixed.N
        else best_size(law, SHARE, 1e19, T, B)[0]
        for T in ([fixed.T] if fixed.T else loops)
        for B in ([fixed.B] if fixed.B else loops)
        if B <= T
    ]
    assert min(losses) - 2e-4 < choice.loss <= min(losses) + 1e-9
    assert choice.loss <= planner.best(1e19, fixed).loss
    assert 1 <= choice.B <= choice.T * (1 + 1e-9) <= 16 * (1 + 1e-6)


def test_real_loops_of_a_law_of_full_loops() -> None:
    law = open_law("iso-depth")
    choice = Planner(law, SHARE).best(1e19, Fixed(N=1e8), whole=False)
    found = minimize_scalar(
        lambda r: loss_at(law, SHARE, 1e19, r, r, 1e8), bounds=(1, 16), method="bounded"
    )
    assert choice.T == choice.B == pytest.approx(found.x, rel=1e-2)
    assert choice.loss == pytest.approx(found.fun, rel=1e-8)


def test_both_sizes_fixed_leaves_only_the_loops() -> None:
    planner = Planner(law_of())
    cost = float(compute((1 - SHARE) * 1e8, SHARE * 1e8, 4, 3, 1e9))
    choice = planner.best(cost * 1.0001, Fixed(N=1e8, D=1e9))
    g = {
        (T, B): float(law_of().g_at(T, B))
        for T, B in itertools.product(range(1, 17), repeat=2)
        if B <= T and 2 * T + 4 * B <= 2 * 4 + 4 * 3
    }
    assert loops_of(choice) == max(g, key=lambda pair: g[pair])
    with pytest.raises(InputError, match="raise the budget or fix less"):
        planner.best(5 * 1e17, Fixed(N=1e8, D=1e9))


# What the paper states of compute and parameters, by brute force on the calibrated law.


def test_truncation_saves_34_percent(law) -> None:
    share = law.recurrent_share
    target = best_size(law, share, 1e19, 8, 8)[0]
    saved = {B: 1 - compute_to_reach(law, share, target, 8, B) / 1e19 for B in range(1, 8)}
    assert saved[2] == pytest.approx(0.34, abs=0.01)
    assert max(saved, key=lambda B: saved[B]) == 2
    numbers = plan(Ask(Planner(law), 1e19))["answers"][3]["numbers"]
    assert (numbers["T"], numbers["B"]) == (8, 2)
    assert numbers["saving"] == pytest.approx(saved[2], abs=1e-5)


def test_two_loops_save_parameters_at_little_compute(law) -> None:
    share = law.recurrent_share
    target, N = best_size(law, share, 1e19, 1, 1)
    needed = compute_to_reach(law, share, target, 2, 2)
    saved = 1 - best_size(law, share, needed, 2, 2)[1] / N
    assert 0.27 <= saved <= 0.32
    assert 1.0 < needed / 1e19 <= 1.08
    assert best_size(law, share, 1.08e19, 2, 2)[0] < target
    numbers = plan(Ask(Planner(law), 1e19))["answers"][4]["numbers"]
    assert numbers["parameter_saving"] == pytest.approx(saved, abs=1e-3)
    assert numbers["relative_compute"] == pytest.approx(needed / 1e19, rel=1e-5)


def test_no_loop_is_compute_optimal_and_equal_cost_prefers_full_loops(law) -> None:
    share = law.recurrent_share
    losses = {
        (T, B): best_size(law, share, 1e19, T, B)[0]
        for T in (1, 2, 3, 4, 8)
        for B in range(1, T + 1)
    }
    assert min(losses, key=lambda pair: losses[pair]) == (1, 1)
    assert losses[4, 4] < losses[8, 2]
    best = Planner(law, max_loops=64).best(1e19, Fixed())
    assert (best.T, best.B) == (1, 1)


def test_loops_grow_slowly_at_fixed_size(law) -> None:
    share, N = law.recurrent_share, 1e8

    def best_loops(log_C: float) -> float:
        return float(
            minimize_scalar(
                lambda log_T: loss_at(
                    law, share, math.exp(log_C), math.exp(log_T), math.exp(log_T), N
                ),
                bounds=(0, math.log(64)),
                method="bounded",
                options={"xatol": 1e-9},
            ).x
        )

    def budget_for(T: float) -> float:
        return brentq(lambda log_C: best_loops(log_C) - math.log(T), 30, 70, xtol=1e-6)

    log_C = np.linspace(budget_for(2), budget_for(16), 30)
    log_T = np.array([best_loops(c) for c in log_C])
    slope = np.polyfit(log_C, log_T, 1)[0]
    assert slope == pytest.approx(0.24, abs=0.03)
    growth = growth_at_fixed_size(Planner(law))
    assert growth.loops == pytest.approx(slope, abs=1e-3)
    log_D = log_C - np.log(1 - share + share * np.exp(log_T))
    assert growth.tokens == pytest.approx(np.polyfit(log_C, log_D, 1)[0], abs=1e-3)
    assert growth.tokens > 0.5


@pytest.mark.parametrize(("beta", "slope"), [(0.369, 0.216), (0.42, 0.24)])
def test_the_slope_speaks_of_beta(law, beta, slope) -> None:
    changed = law.model_copy(update={"beta": beta})
    assert growth_at_fixed_size(Planner(changed)).loops == pytest.approx(slope, abs=2e-3)


def test_iso_depth_cannot_grow_so_slowly() -> None:
    for share in (0.2, 0.466, 0.7, 1.0):
        assert growth_at_fixed_size(Planner(open_law("iso-depth"), share)).loops >= 0.7


def test_a_law_whose_loops_harm_has_no_growth() -> None:
    with pytest.raises(InputError, match="do not lower the loss"):
        growth_at_fixed_size(Planner(law_of(c=-0.2)))


def test_beyond_c_of_1_191_two_loops_would_win() -> None:
    below, above = (Planner(law_of(c=c)).best(1e19, Fixed()) for c in (1.19, 1.192))
    assert (below.T, below.B) == (1, 1)
    assert (above.T, above.B) == (2, 2)


def test_all_parameters_recurrent_would_need_another_c() -> None:
    planner = Planner(law_of(c=1.218), share=1.0)
    assert 1 - planner.relative_compute((8, 2), (8, 8)) == pytest.approx(0.34, abs=1e-3)


def test_the_same_answers_whatever_the_level_of_the_loss(law) -> None:
    other = law.model_copy(update={"A": 3 * law.A, "E": 0.4, "alpha": 0.33, "B_D": law.B_D / 5})
    for pair, reference in (((8, 2), (8, 8)), ((2, 2), (1, 1))):
        target = best_size(other, 0.488, 1e19, *reference)[0]
        ratio = compute_to_reach(other, 0.488, target, *pair) / 1e19
        assert ratio == pytest.approx(
            Planner(law, 0.488).relative_compute(pair, reference), rel=1e-5
        )


def test_what_was_not_run_is_marked() -> None:
    fitted = law_of().model_copy(
        update={"fitted_range": {"compute": (1e12, 1e15), "N": (1e5, 1e6), "D": (1e6, 1e9)}}
    )
    planner = Planner(fitted)
    inside = planner.best(1e14, Fixed(N=5e5, T=1, B=1))
    assert planner.extrapolated(inside) == ["the range of what was run is not known for T, B"]
    sentences = planner.extrapolated(planner.best(1e17, Fixed(N=5e4, T=1, B=1)))
    assert sentences[0] == "compute = 1e+17 lies above what was run, 1e+12 to 1e+15"
    assert sentences[1] == "N = 5e+04 lies below what was run, 1e+05 to 1e+06"
    assert sentences[2].startswith("D = 3.333e+11 lies above")


def test_questions_respect_what_they_ask_about() -> None:
    planner = Planner(law_of())
    answers = plan(Ask(planner, 1e19, Fixed(N=3e7, T=6, B=2)))["answers"]
    split, together, at_size, truncation, _ = answers
    assert (split["choice"]["T"], split["choice"]["B"]) == (6, 2)
    assert split["choice"]["loss"] == pytest.approx(best_size(law_of(), SHARE, 1e19, 6, 2)[0])
    assert together["choice"] == asdict(planner.best(1e19, Fixed()))
    assert at_size["choice"] == asdict(planner.best(1e19, Fixed(N=3e7)))
    assert at_size["choice"]["T"] > 1
    assert at_size["numbers"]["loop_exponent"] == growth_at_fixed_size(planner).loops
    assert truncation["numbers"]["saving"] == 1 - planner.relative_compute((6, 2), (6, 6))
    unasked = plan(Ask(planner, 1e19))["answers"][2]
    assert unasked["choice"]["N"] == pytest.approx(planner.best(1e19, Fixed(T=1, B=1)).N / 4)


def test_a_law_is_asked_only_what_it_covers() -> None:
    document = plan(Ask(Planner(open_law("iso-depth")), 1e19))
    assert "says nothing about T = 8" in document["answers"][3]["text"]
    assert document["answers"][4]["numbers"]["parameter_saving"] > 0
    free = law_of("free")
    assert set(Planner(free).pairs()) == {(1, 1), (2, 1), (2, 2), (4, 2)}
    assert "says nothing" in plan(Ask(Planner(free), 1e17))["answers"][3]["text"]


@pytest.mark.parametrize(
    ("fixed", "reason"),
    [
        ({"T": 2, "B": 3}, "B = 3 exceeds T = 2"),
        ({"T": 0}, "T = 0 cannot be"),
        ({"B": -1}, "B = -1 cannot be"),
        ({"N": math.nan}, "N = nan cannot be"),
        ({"D": math.inf}, "D = inf cannot be"),
    ],
)
def test_impossible_wishes_are_refused(fixed, reason) -> None:
    with pytest.raises(InputError, match=reason):
        Fixed(**fixed)


def test_impossible_budgets_and_shares_are_refused() -> None:
    for budget in (0.0, -1e18, math.nan, math.inf):
        with pytest.raises(InputError, match="cannot be spent"):
            Planner(law_of()).best(budget, Fixed())
    with pytest.raises(InputError, match=r"--share 1\.5"):
        Planner(law_of(), 1.5)
    with pytest.raises(InputError, match="give it with --share"):
        Planner(law_of().model_copy(update={"recurrent_share": None}))
