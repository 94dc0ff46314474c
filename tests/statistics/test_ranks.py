"""Ranks of designs whose order is known, and of runs that did not end well."""

from typing import Any

import numpy as np

from depthbench.statistics.noise import noise_of
from depthbench.statistics.ranks import ranks
from depthbench.statistics.reading import grid_of
from tests.statistics.kit import drawn, row, rows_of


def ranked(rows: list[dict[str, Any]], shapes: list[int]) -> list[int | None]:
    [found] = ranks(noise_of(grid_of(rows)), [shapes], 0.05)
    return [rank.rank for rank in found]


def test_ranks_count_the_better_designs() -> None:
    loss = drawn(0, 5, 3, 3)
    loss[[1, 3]] -= 1.0
    loss[4] += 1.0
    rows = rows_of(loss)
    assert ranked(rows, [0, 1, 2]) == [3, 1, 3, 1, 5]
    [found] = ranks(noise_of(grid_of(rows)), [[0]], 0.05)
    assert [rank.behind for rank in found] == [(1, 3), (), (1, 3), (), (0, 1, 2, 3)]


def test_the_last_rank_counts_those_that_are_surely_worse() -> None:
    """Six designs: two ahead, two in the middle, one last; d5 was not run and takes no place."""
    loss = drawn(0, 5, 3, 3)
    loss[[1, 3]] -= 1.0
    loss[4] += 1.0
    rows = [*rows_of(loss), row("d5", 0, 1, 0.1)]
    [found] = ranks(noise_of(grid_of(rows)), [[0, 1, 2]], 0.05)
    assert [(r.rank, r.worst) for r in found] == [
        (3, 4),
        (1, 2),
        (3, 4),
        (1, 2),
        (5, 5),
        (None, None),
    ]


def test_a_design_that_is_told_apart_from_none_may_have_any_rank() -> None:
    loss = drawn(0, 5, 1, 3)
    loss[:2] -= 1.0
    loss[4] = [[-30.0, 0.0, 40.0]]  # the worst mean, of runs that lie anywhere
    [found] = ranks(noise_of(grid_of(rows_of(loss))), [[0]], 0.05)
    assert [(r.rank, r.worst) for r in found] == [(1, 3), (1, 3), (3, 5), (3, 5), (1, 5)]


def test_all_pairs_of_all_scopes_are_one_family() -> None:
    # Differences 1, 3, 5, 7, 9 and 11: t = √6·6/3.742 = 3.93 on 5 degrees of freedom, p = 0.011.
    loss = np.zeros((2, 3, 6))
    loss[0] = np.random.default_rng(1).normal(size=(3, 6)) * 5
    loss[1] = loss[0] + np.array(
        [[1, 3, 5, 7, 9, 11.0], [6, 6, 6, 6, 6, -30], [6, 6, 6, 6, 6, -30]]
    )
    rows = rows_of(loss[:, :1])
    noise = noise_of(grid_of(rows))
    assert [r.rank for r in ranks(noise, [[0]], 0.05)[0]] == [1, 2]
    assert [r.rank for r in ranks(noise, [[0]] * 5, 0.05)[0]] == [1, 1]  # 5·0.011 > 0.05


def test_a_diverged_cell_ranks_worst_and_among_them_by_step() -> None:
    rows = rows_of(drawn(2, 2, 1, 3))
    for name, steps in {"d2": (None, None, 70), "d3": (50, 60, 70), "d4": (50, 80, 90)}.items():
        for seed, step in enumerate(steps, 1):
            fate = {"status": "diverged", "diverged_step": step} if step else {}
            rows.append(row(name, 0, seed, None if step else 0.1, **fate))
    rows += [row("d5", 0, s, None, status="diverged", diverged_step=50) for s in (1, 2, 3)]
    rows += [row("d6", 0, s, None, status="diverged", diverged_step=30) for s in (1, 2, 3)]
    # d2 finished two seeds far below the others, and yet ranks behind all that finished three.
    assert ranked(rows, [0]) == [1, 1, 3, 4, 4, 4, 7]


def test_one_diverged_cell_makes_the_whole_ladder_worst() -> None:
    loss = drawn(3, 3, 2, 3)
    loss[1] -= 1.0
    rows = rows_of(loss)
    assert ranked(rows, [0, 1]) == [2, 1, 2]
    last = next(r for r in rows if r["path"] == "runs/d1-1-3")
    last.update(status="diverged", loss=None, diverged_step=5)
    assert ranked(rows, [0, 1]) == [1, 3, 1]
    assert ranked(rows, [0]) == [2, 1, 2]


def test_a_design_without_a_result_has_no_rank_but_a_reason() -> None:
    rows = rows_of(drawn(4, 3, 2, 3))
    rows += [row("d3", 0, 1, 5.0), row("d3", 1, 1, None, status="failed", error="killed")]
    [found] = ranks(noise_of(grid_of(rows)), [[0, 1]], 0.05)
    assert [rank.rank for rank in found] == [1, 1, 1, None]
    assert found[3].reason == "L4/d64: seed 1 is failed (killed)"


def test_without_noise_nobody_is_ranked() -> None:
    rows = rows_of(drawn(5, 3, 2, 1))
    [found] = ranks(noise_of(grid_of(rows)), [[0, 1]], 0.05)
    assert [rank.rank for rank in found] == [None] * 3
    assert "no estimate of the noise" in str(found[0].reason)
