"""The whole of one matrix: what it says, that JSON can hold it, and how long it takes."""

import json
import time

import numpy as np
import pandas as pd

from depthbench.statistics import Diverged, analyse
from tests.statistics.kit import drawn, row, rows_of


def test_a_matrix_is_told_in_full() -> None:
    loss = drawn(7, 4, 3, 3)
    loss[2] -= 1.0
    rows = rows_of(loss)
    rows += [row("d4", s, 1, 5.0) for s in (0, 1)]
    rows.append(row("d4", 2, 1, None, status="diverged", diverged_step=12))
    rows += [row("d5", 0, 1, 5.0), row("d5", 1, 1, None, status="failed", error="killed")]
    result = analyse(rows, "base")
    assert result.designs[0].design.design == "d2"
    ranks = {d.design.design: d.rank for d in result.designs}
    assert ranks == {"d2": 1, "base": 2, "d1": 2, "d3": 2, "d4": 5, "d5": None}
    [unranked] = [d for d in result.designs if d.rank is None]
    assert unranked.rank_reason == "L4/d64: seed 1 is failed (killed)"
    [last] = [c for c in result.cells if c.design.design == "d4" and c.shape.layers == 8]
    assert (last.rank, last.loss, last.runs.diverged) == (5, None, (Diverged(1, 12),))
    assert last.difference.reason == "d4 at L8/d32: seed 1 diverged at step 12"
    [best] = [c for c in result.cells if c.design.design == "d2" and c.shape.layers == 8]
    assert best.loss == np.mean(loss[2, 2])
    assert best.difference.high is not None
    assert best.difference.high < 0
    assert {key.design for key in last.behind} == {"base", "d1", "d2", "d3"}


def test_every_cell_is_there_and_shapes_stay_together() -> None:
    rows = [*rows_of(drawn(1, 3, 2, 2)), row("d3", 1, 1, 9.0)]
    cells = analyse(rows, "base").cells
    assert [cell.shape.layers for cell in cells] == [2] * 4 + [4] * 4
    [empty] = [cell for cell in cells if cell.loss is None]
    assert (empty.design.design, empty.rank_reason) == ("d3", "L2/d128: not run")


def test_json_holds_it() -> None:
    rows = rows_of(drawn(2, 3, 2, 2))
    rows.append(row("d3", 0, 1, float("nan")))
    rows.append(row("d4", 0, 1, None, status="diverged"))
    document = analyse(rows, "base", seed=5, num_resamples=100).document()
    assert json.loads(json.dumps(document, allow_nan=False))["seed"] == 5


def test_a_frame_says_what_its_records_say() -> None:
    rows = rows_of(drawn(3, 3, 2, 2))
    frame = pd.DataFrame(rows).astype({"seed": "Int64", "layers": "Int64", "d_model": "Int64"})
    assert analyse(frame, "base", num_resamples=100) == analyse(rows, "base", num_resamples=100)


def test_without_a_baseline_designs_are_ranked_all_the_same() -> None:
    loss = drawn(4, 3, 2, 3)
    loss[1] -= 1.0
    result = analyse(rows_of(loss), "absent", num_resamples=100)
    assert [design.rank for design in result.designs] == [1, 2, 2]
    assert result.baseline is None
    assert result.designs[0].difference.reason == "the baseline was not run"


def test_nothing_is_not_an_error() -> None:
    result = analyse([], "base")
    assert (result.cells, result.designs, result.noise.run) == ((), (), None)
    json.dumps(result.document(), allow_nan=False)


def test_a_full_matrix_takes_less_than_a_second() -> None:
    rows = rows_of(drawn(5, 10, 5, 3))
    start = time.process_time()
    analyse(rows, "base")
    assert time.process_time() - start < 1.0
