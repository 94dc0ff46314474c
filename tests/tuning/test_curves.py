"""Sensitivity curves against parabolas and lists whose answers are known."""

import math
from typing import Any

import pytest

from depthbench.axes import Tune
from depthbench.config import DesignRef
from depthbench.tuning import Curve, Rates, curves
from depthbench.tuning.curves import Key, Point
from depthbench.tuning.search import next_rate

KEY = Key("pre-ln", 1, "{}", None, 6, 80)
GRID = [1e-3, 2e-3, 4e-3, 8e-3]


def curve(*losses: float | None, rates: list[float] | None = None, **key: Any) -> Curve:
    rates = rates or GRID[: len(losses)]
    points = (Point(rate, loss, (7,)) for rate, loss in zip(rates, losses, strict=True))
    return Curve(KEY._replace(**key), tuple(points))


def row(rate: float, loss: float | None, seed: int = 7, **changes: Any) -> dict[str, Any]:
    fields = dict(zip(KEY._fields, KEY, strict=True))
    fields["design_version"] = fields.pop("version")
    status = "diverged" if loss is None else "done"
    fields |= {"learning_rate": rate, "loss": loss, "seed": seed, "status": status}
    return fields | changes


def test_rows_become_points_by_rate_with_the_mean_over_seeds() -> None:
    rows = [
        row(2e-3, 4.0),
        row(1e-3, 5.0, 7),
        row(1e-3, 6.0, 8),
        row(4e-3, None),
        row(4e-3, 3.0, 8),
    ]
    rows += [row(8e-3, None, status="failed"), row(1e-3, 9.0, design="hc")]
    found = {c.key.design: c.points for c in curves(rows)}
    assert found["pre-ln"] == (
        Point(1e-3, 5.5, (7, 8)),
        Point(2e-3, 4.0, (7,)),
        Point(4e-3, None, (7, 8)),  # one of its seeds diverged: worse than any
    )
    assert found["hc"] == (Point(1e-3, 9.0, (7,)),)


@pytest.mark.parametrize(
    ("losses", "best", "edge"),
    [
        ((5.0, 4.0, 4.5, 4.6), 2e-3, None),
        ((4.0, 4.1, 4.5, 4.6), 1e-3, "low"),
        ((5.0, 4.4, 4.3, 4.2), 8e-3, "high"),
        ((5.0, 4.4, 4.2, None), 4e-3, None),  # a divergence bounds the curve
        ((5.0, 4.0, 4.0, 4.6), 2e-3, None),
        ((4.0, None, None, None), 1e-3, "low"),
        ((None, None, None, None), None, "low"),
    ],
)
def test_best_and_edge(losses, best, edge) -> None:
    found = curve(*losses)
    assert (found.best.rate if found.best else None) == best
    assert found.edge == edge


def test_the_basin_of_a_wedge_in_log_rate() -> None:
    """0.01 nats an octave on both sides: half an octave either way is within 0.005."""
    basin = curve(4.02, 4.01, 4.0, 4.01).basin
    assert basin is not None
    assert basin.low == pytest.approx(4e-3 / math.sqrt(2))
    assert basin.high == pytest.approx(4e-3 * math.sqrt(2))
    assert basin.octaves == pytest.approx(1.0)
    assert not basin.open_below
    assert not basin.open_above


def test_a_basin_ends_at_a_divergence_and_is_open_where_nothing_was_tried() -> None:
    basin = curve(4.004, 4.003, 4.0, None).basin
    assert basin is not None
    assert (basin.low, basin.high) == (1e-3, 4e-3)
    assert (basin.open_below, basin.open_above) == (True, False)
    assert curve(None, None, None, None).basin is None


def test_a_dip_beyond_a_wall_is_another_basin() -> None:
    basin = curve(4.0, 4.05, 4.001, 4.2).basin
    assert basin is not None
    assert basin.high == pytest.approx(1e-3 * 2**0.1)


def tune(**changes: Any) -> Tune:
    return Tune.model_validate({"rates": GRID, "layers": [6], "seeds": [7]} | changes)


def test_an_edge_is_continued_and_an_interior_optimum_is_not() -> None:
    assert next_rate(curve(5.0, 4.0, 4.5, 4.6), tune()) is None
    assert next_rate(curve(4.0, 4.1, 4.5, 4.6), tune()) == pytest.approx(5e-4)
    assert next_rate(curve(5.0, 4.4, 4.3, 4.2), tune()) == pytest.approx(1.6e-2)
    longer = curve(5, 4.4, 4.3, 4.2, 4.1, rates=[*GRID, 1.6e-2])
    assert next_rate(longer, tune()) == pytest.approx(3.2e-2)
    assert next_rate(longer, tune(extensions=1)) is None
    assert next_rate(curve(None, None, None, None), tune()) == pytest.approx(5e-4)
    assert next_rate(curve(4.0, 4.1, 4.5, 4.6), tune(extensions=0)) is None


def test_rates_between_anchors_lie_on_a_line_in_log_log() -> None:
    """8e-3 at 2 blocks, 2e-3 at 32: a power law of depth with exponent −½."""
    found = Rates(
        [
            curve(5.0, 4.4, 4.2, 4.0, None, rates=[*GRID, 1.6e-2], layers=2),
            curve(5.0, 4.0, 4.5, 4.6, layers=32),
        ],
        2.0,
    )
    ref = DesignRef(name="pre-ln", version=1)
    rate, tuned = found.at(ref, None, 8)
    assert rate == pytest.approx(8e-3 * (8 / 2) ** -0.5, rel=1e-3)
    assert (tuned.edge, tuned.interpolated, tuned.seeds) == (False, True, (7,))
    assert tuned.rates == (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
    rate, tuned = found.at(ref, None, 32)
    assert (rate, tuned.interpolated) == (2e-3, False)
    assert found.at(ref, None, 64)[0] == 2e-3
    assert found.at(ref, None, 1)[0] == 8e-3
    with pytest.raises(KeyError):
        found.at(DesignRef(name="hc", version=1), None, 8)


def test_an_edge_at_one_anchor_marks_what_is_interpolated_from_it() -> None:
    found = Rates([curve(4.0, 4.1, 4.2, 4.3, layers=2), curve(5.0, 4.0, 4.5, 4.6, layers=8)], 2.0)
    ref = DesignRef(name="pre-ln", version=1)
    assert [found.at(ref, None, layers)[1].edge for layers in (2, 4, 8)] == [True, True, False]


def test_where_all_diverged_the_rate_is_below_all() -> None:
    found = Rates([curve(None, None, None, None)], 2.0)
    rate, tuned = found.at(DesignRef(name="pre-ln", version=1), None, 6)
    assert rate == pytest.approx(5e-4)
    assert tuned.edge
