"""What the pictures show, read back from their axes."""

import numpy as np
import pytest

from depthbench.scaling import Ask, Fixed, Planner, fit, pictures
from tests.scaling.kit import FULL, law_of, runs_of


@pytest.fixture
def drawn(monkeypatch):
    """Pictures come back as figures."""
    monkeypatch.setattr(pictures, "_svg", lambda figure: figure)


@pytest.mark.usefixtures("drawn")
def test_residuals_are_observed_minus_predicted() -> None:
    runs = runs_of(law_of("iso-depth"), FULL)
    runs.loss[7] *= 1.05  # one run came out five percent worse than the law of all others
    found = fit(runs, "iso-depth", num_starts=3, num_resamples=0)
    left, right = pictures.residual_plot(found).axes
    points = np.concatenate([line.get_xydata() for line in left.lines[: len(FULL)]])
    assert points[:, 1].max() == pytest.approx(100 * np.log(1.05), abs=0.05)
    undisturbed = np.sort(runs_of(law_of("iso-depth"), FULL).loss)
    assert np.sort(points[:, 0]) == pytest.approx(undisturbed, rel=1e-3)
    worths = [line.get_ydata()[0] for line in right.lines[: len(FULL)]]
    assert worths == pytest.approx([1, 2**0.459, 4**0.459, 8**0.459], rel=5e-3)


@pytest.mark.usefixtures("drawn")
def test_the_frontier_is_drawn_through_only_where_runs_were() -> None:
    law = law_of().model_copy(update={"fitted_range": {"compute": (1e16, 1e18)}})
    ask = Ask(Planner(law), 1e18, Fixed(N=1e8))
    best = ask.best(ask.fixed)
    contours, frontier = pictures.plan_picture(ask, best).axes
    solid = [line for line in frontier.lines if line.get_linestyle() == "-"]
    assert len(solid) == 3
    for line in solid:
        budgets, losses = line.get_data()
        known = (budgets >= 1e16 * 0.999) & (budgets <= 1e18 * 1.001)
        assert np.array_equal(np.isfinite(losses), known)
    no_loop, _, free = (np.array(line.get_ydata()) for line in frontier.lines[::2][:3])
    assert np.all(free <= no_loop + 1e-12)
    assert np.all(np.diff(free) < 0)
    star = contours.lines[-1]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (best.T, best.B)


@pytest.mark.usefixtures("drawn")
def test_a_law_without_a_surface_is_drawn_where_it_speaks() -> None:
    law = law_of("free")
    ask = Ask(Planner(law), 1e17)
    points, _ = pictures.plan_picture(ask, ask.best(ask.fixed)).axes
    losses = points.lines[0].get_ydata()
    pairs = [(1, 1), (2, 1), (2, 2), (4, 2)]
    expected = [ask.planner.best(1e17, Fixed(T=T, B=B)).loss for T, B in pairs]
    assert losses == pytest.approx(expected)
