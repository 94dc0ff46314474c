"""Means over seeds and differences to Pre-LN, against values worked out by hand."""

from collections.abc import Callable

import pytest

from depthbench.report.lines import (
    IS_REFERENCE,
    NO_REFERENCE,
    NO_RESULT,
    NO_SPEED_REFERENCE,
    Line,
    Spread,
    best_lines,
    delta,
    lines_of,
    relative_speed,
    repeats,
    status_text,
)
from depthbench.store import Record

Make = Callable[..., Record]


def line(lines: list[Line], design: str, layers: int = 4) -> Line:
    [found] = [x for x in lines if x.series.design == design and x.shape.layers == layers]
    return found


def test_mean_and_deviation_are_over_seeds(record: Make) -> None:
    lines = lines_of([record(seed=1, loss=3.0), record(seed=2, loss=3.2), record(seed=3, loss=3.4)])
    assert lines[0].loss == pytest.approx(Spread(3.2, 0.2, 3))
    assert lines_of([record(loss=3.0)])[0].loss == Spread(3.0, None, 1)


def test_differences_are_paired_by_seed(record: Make) -> None:
    lines = lines_of(
        [
            record(seed=1, loss=3.0),
            record(seed=2, loss=4.0),
            record(design="hc", seed=1, loss=2.9),
            record(design="hc", seed=2, loss=3.7),
            record(design="hc", seed=7, loss=9.0),
            record(design="mhc", seed=7, loss=3.0),
            record(design="lns", layers=8, seed=1, loss=3.0),
        ]
    )
    best = best_lines(lines)
    found = delta(line(lines, "hc"), best)
    assert found == pytest.approx(Spread(-0.2, 0.1 * 2**0.5, 2))
    assert delta(line(lines, "pre-ln"), best) == IS_REFERENCE
    assert delta(line(lines, "mhc"), best) == NO_REFERENCE
    assert delta(line(lines, "lns", 8), best) == NO_REFERENCE


def test_a_repeat_of_a_seed_counts_once(record: Make) -> None:
    records = [record(path="a", loss=3.0), record(path="b", suite="again", loss=5.0)]
    lines = lines_of(records)
    assert lines[0].loss == Spread(3.0, None, 1)
    assert [r["path"] for r in repeats(lines)] == ["b"]


def test_what_did_not_finish_stays_and_has_no_mean(record: Make) -> None:
    lost = record(design="hc", seed=2, status="diverged", diverged_step=1412, loss=None)
    lines = lines_of([record(), lost])
    hc = line(lines, "hc")
    assert hc.loss == NO_RESULT
    assert delta(hc, best_lines(lines)) == NO_RESULT
    assert status_text(hc.records) == "diverged at step 1,412"
    assert lines[-1] is hc


def test_status_counts_what_differs(record: Make) -> None:
    records = [
        record(seed=1),
        record(seed=2, status="failed", step=7, loss=None),
        record(seed=3, status="pending", step=None, loss=None),
    ]
    assert status_text(records) == "1 of 3 done, failed at step 7 (seed 2), pending (seed 3)"


def test_a_line_with_a_lost_seed_sorts_after_whole_ones(record: Make) -> None:
    lost = {"status": "diverged", "diverged_step": 5, "loss": None}
    lines = lines_of(
        [record(seed=1, loss=2.0), record(seed=2, **lost), record(design="hc", loss=3.0)]
    )
    assert [x.series.design for x in lines] == ["hc", "pre-ln"]


def test_of_several_learning_rates_the_lowest_loss_is_drawn(record: Make) -> None:
    lines = lines_of(
        [record(learning_rate=rate, loss=loss) for rate, loss in ((1e-2, 3.1), (2e-2, 3.0))]
    )
    assert len(lines) == 2
    [best] = best_lines(lines).values()
    assert best.learning_rate == 2e-2


def test_speed_is_relative_within_one_host_and_suite(record: Make) -> None:
    lines = lines_of(
        [
            record(host="a", seed=1, tokens_per_second=100.0),
            record(host="b", seed=2, tokens_per_second=1000.0),
            record(design="hc", host="a", seed=1, tokens_per_second=50.0),
            record(design="hc", host="b", seed=2, tokens_per_second=700.0),
            record(design="mhc", host="c", tokens_per_second=50.0),
            record(design="lns", suite="other", tokens_per_second=50.0),
        ]
    )
    assert relative_speed(line(lines, "hc"), lines) == pytest.approx(0.6)
    assert relative_speed(line(lines, "pre-ln"), lines) == 1.0
    assert relative_speed(line(lines, "mhc"), lines) == NO_SPEED_REFERENCE
    assert relative_speed(line(lines, "lns"), lines) == NO_SPEED_REFERENCE
