"""Two reports laid side by side, with changes worked out by hand."""

import json
from typing import Any

import numpy as np
import pytest

from depthbench.errors import InputError
from depthbench.statistics import CELL_KEY, Comparison, DesignChange, paired_change
from tests.statistics.kit import drawn, row, rows_of


def of(comparison: Comparison, name: str) -> DesignChange:
    return next(d for d in comparison.designs if d.design["design"] == name)


def shifted(rows: list[dict[str, Any]], name: str, by: float) -> list[dict[str, Any]]:
    return [r | {"loss": r["loss"] + by} if r["design"] == name else r for r in rows]


def test_the_change_of_a_cell_by_hand() -> None:
    before = rows_of([[[5.0, 6.0]]])
    after = rows_of([[[6.0, 9.0]]])
    found = paired_change(before, after)
    [cell] = found.cells
    assert (cell.before, cell.after, cell.change.value) == (5.5, 7.5, 2.0)
    assert cell.change.high == pytest.approx(2 + 12.7062, abs=1e-3)
    assert cell.cell["layers"] == 2
    assert "seed" not in cell.cell
    assert of(found, "base").verdict == "no readable change"


def test_a_design_pools_its_cells() -> None:
    before = rows_of(np.zeros((1, 2, 2)))
    after = rows_of([[[1.0, 3.0], [5.0, 9.0]]])
    change = of(paired_change(before, after), "base").change
    # Variances 2 and 8 on one degree of freedom each: 5 on 2; the mean of four changes.
    assert (change.value, change.dof, change.num) == (4.5, 2, 4)
    assert change.high == pytest.approx(4.5 + 4.30265 * np.sqrt(5 / 4), abs=1e-3)


def test_single_seeds_are_judged_by_the_spread_over_cells() -> None:
    after = rows_of([[[1.0], [2.0], [3.0]]])
    found = paired_change(rows_of(np.zeros((1, 3, 1))), after)
    change = of(found, "base").change
    assert change.high == pytest.approx(2 + 4.30265 / np.sqrt(3), abs=1e-3)
    assert found.cells[0].change.low is None
    assert found.cells[0].change.reason


def test_verdicts() -> None:
    before = rows_of(drawn(0, 5, 3, 3))
    noise = np.random.default_rng(1).normal(size=len(before)) * 1e-3
    after = [r | {"loss": r["loss"] + e} for r, e in zip(before, noise, strict=True)]
    after = shifted(shifted(after, "d1", 0.1), "d2", -0.1)
    after = [b if b["design"] == "d3" else a for b, a in zip(before, after, strict=True)]
    found = paired_change(before, after)
    told = {d.design["design"]: d.verdict for d in found.designs}
    assert told["d1"] == "worse"
    assert told["d2"] == "better"
    assert told["d3"] == "equal"
    assert told["d4"] == "no readable change"
    assert [d.design["design"] for d in found.regressions] == ["d1"]
    assert of(found, "d3").change.low is None  # never an interval of no width
    json.dumps(found.document(), allow_nan=False)


def test_a_run_that_no_longer_finishes_is_a_regression() -> None:
    before = rows_of(drawn(2, 2, 2, 2))
    after = [dict(r) for r in before]
    after[-1].update(status="diverged", loss=None, diverged_step=7)
    found = paired_change(before, after)
    assert of(found, "d1").verdict == "worse"
    assert [cell.lost for cell in found.cells if cell.lost] == [{2: "diverged"}]
    back = paired_change(after, before)
    assert [cell.gained for cell in back.cells if cell.gained] == [{2: "diverged"}]
    assert not back.regressions


def test_new_and_gone() -> None:
    before, after = rows_of(drawn(3, 2, 1, 2)), rows_of(drawn(3, 2, 1, 3))[:-1]
    before.append(row("d9", 0, 1, 5.0))
    found = paired_change(before, after)
    assert [(k["design"], k["seed"]) for k in found.new] == [("base", 3)]
    assert [(k["design"], k["seed"]) for k in found.gone] == [("d9", 1)]
    assert {cell.change.num for cell in found.cells} == {2}


def test_ranks_move_over_what_both_hold() -> None:
    loss = drawn(4, 3, 2, 3)
    loss[1] -= 0.5
    before = rows_of(loss) + [row("d9", s, r, 1.0) for s in (0, 1) for r in (1, 2, 3)]
    found = paired_change(before, shifted(rows_of(loss), "d1", 1.0))
    moved = {d.design["design"]: (d.rank_before, d.rank_after) for d in found.designs}
    assert moved == {"base": (2, 1), "d1": (1, 3), "d2": (2, 1)}


def test_versions_are_compared_where_the_key_leaves_them_out() -> None:
    before = rows_of(drawn(5, 2, 2, 2))
    after = [r | {"design_version": 2} for r in before]
    assert len(paired_change(before, after).new) == 8
    found = paired_change(before, after, [name for name in CELL_KEY if name != "design_version"])
    assert (found.new, found.gone) == ((), ())
    assert of(found, "d1").rank_before == 1


def test_what_cannot_be_compared_is_refused() -> None:
    rows = rows_of(drawn(6, 1, 1, 2))
    with pytest.raises(InputError, match="lacks seed"):
        paired_change(rows, rows, ["design", "layers", "d_model"])
    with pytest.raises(InputError, match="not a second sample"):
        paired_change(rows, [*rows, rows[0] | {"path": "elsewhere"}])
    assert paired_change(rows, []).cells == ()
