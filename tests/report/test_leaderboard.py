"""The leaderboard: who has which rank and why, and the same in every file."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from depthbench import report
from depthbench.report.board_files import without_formulas
from depthbench.report.entries import entries_of
from depthbench.report.lines import best_lines, lines_of
from depthbench.report.probes import Probes
from depthbench.report.standings import Board, board_of, counted
from depthbench.statistics.estimates import NO_NOISE
from depthbench.store import Record
from depthbench.tables import read_records
from tests.report import cells as synthetic
from tests.report.reader import read

Make = Callable[..., Record]
SHAPES = ((4, 128), (16, 64))
LEVELS = {"pre-ln": 3.0, "hc": 2.9, "mhc": 2.9, "lns": 3.2}  # far apart, or not at all
NOISE = {1: -0.004, 2: 0.001, 3: 0.003}
TUNED = json.dumps({"rates": [0.001, 0.002, 0.004], "seeds": [101], "edge": True})


def loss_of(design: str, layers: int, seed: int) -> float:
    """Level, a benefit of depth for hc alone, and noise that sums to zero over the seeds."""
    turn = {"hc": 1, "mhc": -1}.get(design, 1)
    benefit = 0.03 if design == "hc" and layers == 16 else 0.0
    return LEVELS[design] - benefit + 0.015 * (design == "hc") + turn * NOISE[seed]


def grid(
    record: Make, seeds: tuple[int, ...] = (1, 2, 3), changes: dict[Any, Any] | None = None
) -> list[Record]:
    """`changes` by design and layers, or by these and the seed."""
    found = []
    for design in LEVELS:
        for layers, width in SHAPES:
            for seed in seeds:
                given = (changes or {}).get((design, layers), {})
                given = given | (changes or {}).get((design, layers, seed), {})
                row: dict[str, Any] = {"layers": layers, "d_model": width, "seed": seed}
                row |= {"loss": loss_of(design, layers, seed), "path": f"{design}{layers}{seed}"}
                found.append(record(design=design, **row | given))
    return found


def board(records: list[Record]) -> Board:
    lines = lines_of(records)
    return board_of(best_lines(lines), lines)


def test_designs_that_nothing_tells_apart_share_a_rank(record: Make) -> None:
    found = board(grid(record))
    ranks = {s.series.design: (s.rank, s.worst) for s in found.standings}
    assert ranks == {"hc": (1, 2), "mhc": (1, 2), "pre-ln": (3, 3), "lns": (4, 4)}
    assert [s.series.design for s in found.standings][2:] == ["pre-ln", "lns"]
    last = found.standings[-1]
    assert {series.design for series in last.behind} == {"hc", "mhc", "pre-ln"}


def test_a_slope_is_per_halving_of_the_aspect_ratio(record: Make) -> None:
    """From 32 to 4 are three halvings, over which the loss of HC falls by 0.03."""
    found = {s.series.design: s for s in board(grid(record)).standings}
    hc = found["hc"]
    assert hc.change.value == pytest.approx(-0.03)
    assert hc.slope.value == pytest.approx(-0.01)
    assert hc.slope.low is not None
    assert hc.slope.high is not None
    assert hc.slope.low < -0.01 < hc.slope.high < 0
    assert found["pre-ln"].slope.value == pytest.approx(0.0)


def test_one_seed_has_no_rank_and_the_order_of_the_mean_difference(record: Make) -> None:
    lost = {("hc", 16): {"status": "diverged", "diverged_step": 7, "loss": None}}
    found = board(grid(record, seeds=(1,), changes=lost))
    assert not found.has_intervals
    assert [(s.rank, s.why_unranked) for s in found.standings] == [(None, NO_NOISE)] * 4
    assert [s.series.design for s in found.standings] == ["mhc", "pre-ln", "lns", "hc"]


def test_a_diverged_run_is_worse_than_any_loss(record: Make) -> None:
    lost = {("hc", 16, 2): {"status": "diverged", "diverged_step": 7, "loss": None}}
    found = {s.series.design: s for s in board(grid(record, changes=lost)).standings}
    assert found["hc"].rank == 4
    assert found["mhc"].rank == 1


@pytest.mark.parametrize("design", ["hc", "pre-ln"])
def test_a_rate_at_the_edge_is_not_ranked_but_still_shown(record: Make, design: str) -> None:
    edge = {(design, 16): {"rate_at_edge": True, "tuned": TUNED}}
    found = board(grid(record, changes=edge))
    standings = {s.series.design: s for s in found.standings}
    flagged = standings[design]
    assert flagged.rank is None
    assert "L16 / d64" in str(flagged.why_unranked)
    assert "(0.001 to 0.004)" in str(flagged.why_unranked)
    assert found.standings[-1] is flagged
    assert standings["lns"].rank == 3  # of three
    assert standings["lns"].difference.value == pytest.approx(0.2)
    if design == "hc":
        assert flagged.difference.value == pytest.approx(-0.1)
        assert flagged.difference.low is not None


def test_every_rate_at_the_edge_leaves_no_rank(record: Make) -> None:
    edge = {"rate_at_edge": True, "tuned": TUNED}
    every = {(design, layers): edge for design in LEVELS for layers, _ in SHAPES}
    assert {s.rank for s in board(grid(record, changes=every)).standings} == {None}


def test_a_repeated_seed_counts_once_and_as_its_worst(record: Make) -> None:
    first = record(path="a", loss=3.0)
    again = record(path="b", loss=3.5)
    lost = record(path="c", loss=None, status="diverged")
    waits = record(path="d", loss=None, status="pending", seed=2)
    [line] = lines_of([again, first, waits])
    assert [r["path"] for r in counted(line)] == ["a", "d"]
    [line] = lines_of([again, first, lost])
    assert [r["path"] for r in counted(line)] == ["c"]


def test_costs_are_means_of_ratios_at_one_shape(record: Make) -> None:
    """Twice and four times Pre-LN's: a ratio of means would not be three."""
    flops = {("pre-ln", 4): 10, ("pre-ln", 16): 1000, ("hc", 4): 20, ("hc", 16): 4000}
    changes = {key: {"train_flops_per_token": value} for key, value in flops.items()}
    lines = lines_of(grid(record, changes=changes))
    best = best_lines(lines)
    found = entries_of(board_of(best, lines), lines, best, [], Probes([], [], []))
    costs = {e.standing.series.design: e.costs["train_flops_per_token"] for e in found.entries}
    assert costs["hc"] == 3.0
    assert costs["pre-ln"] == 1.0
    assert isinstance(costs["lns"], str)


def test_badges_and_rates_are_those_of_the_rows(record: Make) -> None:
    tuned = {"tuned": json.dumps({"rates": [0.01], "seeds": [101], "interpolated": True})}
    changes = {
        ("hc", 4): {"conformance": "conforms"},
        ("hc", 16): {"conformance": "fails causality"} | tuned,
        ("mhc", 4): {"conformance": "conforms"},
    }
    lines = lines_of(grid(record, changes=changes))
    best = best_lines(lines)
    found = entries_of(board_of(best, lines), lines, best, [], Probes([], [], []))
    by_name = {entry.standing.series.design: entry for entry in found.entries}
    assert by_name["hc"].conformance == "conforms; fails causality"
    assert by_name["mhc"].conformance == "conforms; not checked for some runs"
    assert "depthbench check" in by_name["lns"].conformance
    assert [how for _, _, how in by_name["hc"].rates] == ["given", "interpolated"]


def test_text_cannot_become_a_formula() -> None:
    bad = ["=1+1", "+1", "-cmd", "@sum", "\t=1", " =1", "\r1", "＝1"]
    frame = pd.DataFrame({"text": [*bad, "a=b", None], "number": [-1.5] * 10, "whole": [-2] * 10})
    safe = without_formulas(frame)
    assert list(safe["text"][:9]) == [*(f"'{text}" for text in bad), "a=b"]
    assert pd.isna(safe["text"][9])
    assert list(safe["number"]) == [-1.5] * 10
    assert list(safe["whole"]) == [-2] * 10


def test_files_agree_and_the_json_can_be_read_as_rows(tmp_path: Path) -> None:
    title = '=HYPERLINK("http://x",<b>|`x`)'
    for design, level in (("pre-ln", 4.0), (title, 3.5)):
        for layers, width in ((4, 128), (16, 64)):
            for seed in (1, 2, 3):
                cell = synthetic.config(design, (layers, width, 2 * width), seed)
                noise = float(np.sin(seed * layers + level)) / 1000
                synthetic.write_cell(tmp_path / "runs", cell, synthetic.result(cell, level + noise))
    out = report.build([tmp_path / "runs"], tmp_path / "out").parent
    document = json.loads((out / "leaderboard.json").read_text())
    assert (document["schema"], len(document["rows"])) == (1, 12)
    first, second = document["leaderboard"]
    assert (first["design"], first["rank"], second["rank"]) == (title, 1, 2)
    assert first["difference"] == pytest.approx(-0.5, abs=0.01)
    assert first["difference_low"] < first["difference"] < first["difference_high"] < -0.45
    parquet = pd.read_parquet(out / "leaderboard.parquet")
    assert list(parquet["design"]) == [title, "pre-ln"]
    assert list(parquet["rank"]) == [1, 2]
    with open(out / "leaderboard.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["design"] for row in rows] == [f"'{title}", "pre-ln"]
    assert [row["rank"] for row in rows] == ["1", "2"]
    assert float(rows[0]["difference"]) == pytest.approx(first["difference"])
    markdown = (out / "leaderboard.md").read_text()
    assert "http://" not in markdown
    assert "<b>" not in markdown
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    bars = {line.replace("\\|", "").count("|") for line in table}
    assert bars == {11}
    assert len(table) == 4
    assert len(read_records(out / "leaderboard.json")) == 12
    page = read(out / "index.html")
    head, *lines = page.tables["board"]
    assert head[:3] == ["Design", "Rank", "− Pre-LN"]
    assert [line[1] for line in lines] == ["1", "2"]


def test_the_page_explains_every_column_and_says_what_can_be_detected(
    matrix: Callable[..., Path], tmp_path: Path
) -> None:
    root = matrix(designs=("pre-ln", "hc", "deepnorm"), seeds=(1, 2, 3), endings=synthetic.ENDINGS)
    page = read(report.build([root], tmp_path / "out"))
    assert all(cell for line in page.tables["board"] for cell in line)
    assert (
        "The smallest difference of two designs at one shape that 3 seeds can detect" in page.words
    )
    assert "Pre-LN against itself, seed against seed, differs by" in page.words
    assert "per halving of the aspect ratio" in page.words
    status = [line[page.tables["board"][0].index("Status")] for line in page.tables["board"][1:]]
    assert status == ["done", "done", "divergedL16 / d64: 3 of 3 diverged, first at step 412"]


def test_one_seed_is_said_in_one_place(matrix: Callable[..., Path], tmp_path: Path) -> None:
    page = read(report.build([matrix(designs=("pre-ln", "hc"))], tmp_path / "out"))
    assert page.words.count("There are no ranks and no intervals") == 1
    assert [line[1] for line in page.tables["board"][1:]] == ["—none, notea"] * 2
    assert "(95" not in page.words.split("Leaderboard")[1].split("What the columns")[0]
