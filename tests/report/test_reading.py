"""The smallest readable difference, and what is said about depth."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from depthbench.report.lines import Blank, Spread, best_lines, lines_of
from depthbench.report.reading import depth_changes, verdict, yardstick
from depthbench.store import Record

Make = Callable[..., Record]
WIDTHS = {2: 128, 4: 128, 8: 128, 16: 128}


def grid(record: Make, losses: Mapping[str, list[float]], **extra: object) -> list[Record]:
    return [
        record(design=design, layers=layers, loss=loss, **extra)
        for design, values in losses.items()
        for layers, loss in zip(WIDTHS, values, strict=False)
    ]


def test_seeds_give_the_bound_of_a_pooled_t_test(record: Make) -> None:
    records = [
        record(layers=layers, seed=seed, loss=loss)
        for layers, pair in ((4, (3.0, 3.2)), (8, (3.0, 3.1)))
        for seed, loss in enumerate(pair)
    ]
    found = yardstick(best_lines(lines_of(records)))
    assert found is not None
    variance = (0.2**2 / 2 + 0.1**2 / 2) / 2
    student_t = 4.302652729911275  # 97.5 % point, two degrees of freedom
    assert found.nats == pytest.approx(student_t * math.sqrt(2 * variance / 2))
    assert (found.source, found.num_seeds) == ("seeds", 2)


def test_one_line_with_several_seeds_is_enough_to_judge_the_noise(record: Make) -> None:
    records = [record(seed=1, loss=3.0), record(seed=2, loss=3.2), record(design="hc", loss=3.0)]
    found = yardstick(best_lines(lines_of(records)))
    assert found is not None
    assert found.nats == pytest.approx(12.706204736432095 * math.sqrt(2 * 0.02 / 1))
    assert (found.source, found.num_seeds) == ("seeds", 1)


def test_straight_lines_and_a_shared_bend_are_not_noise(record: Make) -> None:
    bend = np.array([0.0, 0.5, 0.7, 0.1])
    steps = np.arange(4)
    slopes = {"a": 0.1, "b": -0.2, "c": 0.3}
    losses = {name: list(3 + slope * steps + bend) for name, slope in slopes.items()}
    found = yardstick(best_lines(lines_of(grid(record, losses))))
    assert found is None or found.nats < 1e-9


def test_unevenness_recovers_known_noise(record: Make) -> None:
    noise = np.random.default_rng(5).normal(0.0, 0.01, (400, 4))
    losses = {f"d{i}": list(3 + 0.01 * i + row) for i, row in enumerate(noise)}
    found = yardstick(best_lines(lines_of(grid(record, losses))))
    assert found is not None
    assert found.source == "unevenness"
    assert found.nats == pytest.approx(1.96 * math.sqrt(2) * 0.01, rel=0.1)


def test_one_wild_design_does_not_set_the_scale(record: Make) -> None:
    noise = np.random.default_rng(6).normal(0.0, 0.01, (10, 4))
    losses = {f"d{i}": list(3 + row) for i, row in enumerate(noise)}
    losses["d9"] = [3.0, 9.0, 3.0, 9.0]
    found = yardstick(best_lines(lines_of(grid(record, losses))))
    assert found is not None
    assert found.nats < 2.0


def test_two_designs_or_two_shapes_give_no_yardstick(record: Make) -> None:
    two_designs = grid(record, {"a": [1.0, 2.0, 1.0], "b": [1.0, 2.0, 4.0]})
    two_shapes = grid(record, {name: [1.0, 2.0] for name in "abcd"})
    for records in (two_designs, two_shapes):
        assert yardstick(best_lines(lines_of(records))) is None


def test_change_is_deepest_minus_shallowest_paired_by_seed(record: Make) -> None:
    records = [
        record(layers=layers, design=design, seed=seed, loss=loss)
        for design, layers, seed, loss in (
            ("pre-ln", 4, 1, 3.0),
            ("pre-ln", 4, 2, 3.2),
            ("pre-ln", 8, 1, 3.1),
            ("pre-ln", 8, 2, 3.2),
            ("hc", 4, 1, 3.0),
            ("hc", 4, 2, 3.5),
            ("hc", 8, 1, 2.9),
            ("hc", 8, 2, 3.2),
        )
    ]
    hc, pre_ln = depth_changes(best_lines(lines_of(records)))
    assert (hc.series.design, pre_ln.series.design) == ("hc", "pre-ln")
    assert hc.change == pytest.approx(Spread(-0.2, 0.1 * math.sqrt(2), 2))
    assert hc.beyond_reference == pytest.approx(Spread(-0.25, 0.05 * math.sqrt(2), 2))
    assert (verdict(hc, None), verdict(pre_ln, None)) == ("falls", "rises")
    assert hc.best == (8, 128)


def test_why_there_is_no_change_is_said(record: Make) -> None:
    lost = {"status": "diverged", "diverged_step": 9, "loss": None}
    records = [
        record(layers=4),
        record(layers=8),
        record(design="hc", layers=4),
        record(design="hc", layers=8, **lost),
        record(design="lns", layers=8),
    ]
    changes = {c.series.design: c for c in depth_changes(best_lines(lines_of(records)))}
    assert changes["hc"].change == "L8 / d128: diverged at step 9"
    assert changes["lns"].change == "not run at L4 / d128"
    assert isinstance(changes["lns"].best, Blank)
    assert verdict(changes["hc"], None) == "no answer"
