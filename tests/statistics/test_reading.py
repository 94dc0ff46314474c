"""Rows become a grid: nothing is counted twice, nothing disappears."""

import math

import numpy as np
import pandas as pd
import pytest

from depthbench.errors import InputError
from depthbench.statistics import Diverged, Missing, Shape
from depthbench.statistics.reading import grid_of
from tests.statistics.kit import row, rows_of


def test_losses_find_their_place() -> None:
    rows = [row("b", 1, 7, 3.0), row("a", 0, 7, 1.0), row("a", 1, 3, 2.0)]
    grid = grid_of(rows)
    assert [key.design for key in grid.designs] == ["a", "b"]
    assert grid.shapes == (Shape(2, 128), Shape(4, 64))
    assert grid.seeds == (3, 7)
    expected = [[[math.nan, 1], [2, math.nan]], [[math.nan] * 2, [math.nan, 3]]]
    np.testing.assert_array_equal(grid.loss_DSR, expected)


def test_a_frame_reads_as_its_records() -> None:
    rows = [row("a", 0, 1, 1.5), row("a", 0, 2, None, status="diverged", diverged_step=9)]
    frame = pd.DataFrame(rows).astype({"diverged_step": "Int64", "seed": "Int64"})
    one, other = grid_of(rows), grid_of(frame)
    np.testing.assert_array_equal(one.loss_DSR, other.loss_DSR)
    assert one.cells == other.cells
    assert other.cell(0, 0).diverged == (Diverged(2, 9),)
    floats = [r | {"diverged_step": r["diverged_step"] or math.nan} for r in rows]
    assert grid_of(floats).cells == one.cells


@pytest.mark.parametrize("status", ["done", "diverged"])
def test_a_repeated_seed_is_refused_with_its_paths(status: str) -> None:
    rows = [row("a", 0, 1, 1.0, path="runs/x"), row("a", 0, 1, 1.1, path="runs/y", status=status)]
    with pytest.raises(InputError, match="not a second sample") as caught:
        grid_of(rows)
    assert "runs/x" in str(caught.value)
    assert "runs/y" in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"design_version": 2},
        {"options": '{"start": 1}'},
        {"learning_rate": 2e-3},
        {"layers": 3},
        {"seed": 2},
        {"status": "failed", "loss": None},
    ],
)
def test_another_run_is_no_repeat(change: dict[str, object]) -> None:
    grid_of([row("a", 0, 1, 1.0), row("a", 0, 1, 1.1) | change])


@pytest.mark.parametrize("loss", [None, math.nan, math.inf])
def test_a_loss_that_is_no_number_is_missing_and_said(loss: float | None) -> None:
    grid = grid_of([row("a", 0, 1, loss)])
    assert np.isnan(grid.loss_DSR).all()
    assert grid.cell(0, 0).missing == (Missing(1, f"is done, but its loss is {loss}"),)


def test_runs_without_a_result_are_named() -> None:
    rows = [
        row("a", 0, 1, None, status="failed", error="out of memory"),
        row("a", 0, 2, None, status="interrupted"),
        row("a", 0, 3, None, status="diverged", diverged_step=40),
    ]
    why = grid_of(rows).why_empty(0, 0)
    assert why == (
        "L2/d128: seed 3 diverged at step 40, seed 1 is failed (out of memory), "
        "seed 2 is interrupted"
    )


def test_rows_that_cannot_be_placed_are_kept_apart() -> None:
    grid = grid_of([row("a", 0, 1, 1.0), row("a", 0, 2, None, error="damaged") | {"design": None}])
    [unplaced] = grid.unplaced
    assert unplaced.seed == 2
    assert "has no design: damaged" in unplaced.reason


def test_the_best_complete_learning_rate_stands_for_a_cell() -> None:
    rows = [
        row("a", 0, 1, 3.0, learning_rate=1e-3),
        row("a", 0, 2, 3.2, learning_rate=1e-3),
        row("a", 0, 1, 2.0, learning_rate=2e-3),  # lower, but with a run that is not there
        row("a", 0, 2, None, learning_rate=2e-3, status="diverged"),
        row("a", 0, 1, 3.3, learning_rate=4e-3),
        row("a", 0, 2, 3.1, learning_rate=4e-3),
    ]
    grid = grid_of(rows)
    np.testing.assert_array_equal(grid.loss_DSR, [[[3.0, 3.2]]])
    assert (grid.cell(0, 0).learning_rate, grid.cell(0, 0).num_rates) == (1e-3, 3)


def test_the_ladder_is_what_most_designs_came_to() -> None:
    rows = rows_of(np.ones((3, 2, 1)))
    rows += [row("base", 2, 1, 1.0), row("d1", 2, 1, None, status="diverged")]
    rows += [row("base", 3, 1, 1.0), row("d1", 3, 1, None, status="failed")]
    assert grid_of(rows).ladder() == [0, 1, 2]


def test_the_baseline_is_the_newest_version_without_options() -> None:
    rows = [
        row("a", 0, 1, 1.0, design_version=1),
        row("a", 0, 1, 1.0, design_version=2),
        row("a", 0, 1, 1.0, design_version=3, options='{"x": 1}'),
    ]
    grid = grid_of(rows)
    found = grid.find("a")
    assert found is not None
    assert grid.designs[found].version == 2
    assert grid.find("b") is None
