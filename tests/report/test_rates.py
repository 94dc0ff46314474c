"""Tuning rows: a part of their own, and in nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from depthbench import report
from depthbench.report.places import At
from depthbench.report.rates import rates_of
from depthbench.report.series import looks
from depthbench.store import Record
from tests.report import cells as synthetic
from tests.report.reader import Page, read

Make = Callable[..., Record]
SHALLOW, DEEP = (4, 128, 352), (16, 64, 176)
RATES = (0.001, 0.002, 0.004)


def tuning_rows(record: Make) -> list[Record]:
    """HC has its best rate inside, Pre-LN at the high edge; one rate of HC diverged."""
    losses = {"hc": (3.2, 3.0, None), "pre-ln": (3.3, 3.2, 3.1)}
    return [
        record(
            role="tuning",
            design=design,
            learning_rate=rate,
            loss=loss,
            status="done" if loss else "diverged",
            loop=None,
        )
        for design, values in losses.items()
        for rate, loss in zip(RATES, values, strict=True)
    ]


def test_curves_are_drawn_with_their_best_rate_and_what_diverged(record: Make) -> None:
    rows = tuning_rows(record)
    [rates] = rates_of(rows, looks(rows))
    [panel] = rates.panels
    assert [place.x for place in panel.places] == list(RATES)
    means = {s.design: [v.mean for v in by.values()] for s, by in panel.values.items()}
    assert means == {"hc": [3.2, 3.0], "pre-ln": [3.3, 3.2, 3.1]}
    assert {s.design: at for s, at in panel.diverged.items()} == {"hc": [At(0.004, "0.004")]}
    best = {mark.series.design: (mark.place.x, mark.kind) for mark in panel.marks}
    assert best == {"hc": (0.002, "best rate"), "pre-ln": (0.004, "best rate, the outermost tried")}


def test_shapes_and_loops_have_panels_of_their_own(record: Make) -> None:
    rows = tuning_rows(record)
    loop = '{"layout":"whole","rounds":2}'
    deep = [row | {"layers": 16, "d_model": 64} for row in rows]
    rows = [*deep, *rows, *(row | {"loop": loop} for row in rows)]
    [rates] = rates_of(rows, looks(rows))
    titles = [panel.title for panel in rates.panels]
    assert titles == ["L4 / d128", "L16 / d64", "L4 / d128, whole ×2"]


def test_rows_that_do_not_compare_have_no_common_curve(record: Make) -> None:
    rows = tuning_rows(record)
    other = [row | {"precision": "bf16"} for row in rows]
    assert len(rates_of([*rows, *other], looks(rows))) == 2


@pytest.fixture
def page(tmp_path: Path) -> Page:
    """Two designs with two scored seeds, and tuning runs with losses that would win."""
    for design in ("pre-ln", "hc"):
        for shape in (SHALLOW, DEEP):
            for seed in (1, 2):
                cell = synthetic.config(design, shape, seed)
                loss = 4.0 + seed / 100 + (design == "hc") * seed / 50
                synthetic.write_cell(tmp_path / "runs", cell, synthetic.result(cell, loss))
            for place, rate in enumerate(RATES):
                changes = {"role": "tuning", "optimizer": {"learning_rate": rate}}
                cell = synthetic.config(design, shape, 101, **changes)
                loss = 2.0 + abs(place - 1 - (design == "hc" and shape == DEEP)) / 100
                document = synthetic.result(cell, loss)
                if design == "hc" and shape == SHALLOW and place == 2:
                    document = synthetic.result(cell, None, status="diverged", diverged_step=9)
                synthetic.write_cell(tmp_path / "runs", cell, document)
    return read(report.build([tmp_path / "runs"], tmp_path / "out"))


def test_tuning_runs_are_in_no_table_but_their_own(page: Page) -> None:
    assert len(page.tables["lines"]) - 1 == 4
    assert len(page.tables["board"]) - 1 == 2
    for name in ("lines", "board", "costs", "depth"):
        text = " ".join(cell for line in page.tables[name] for cell in line)
        assert "2.0000" not in text
        assert "101" not in text
    assert "8 of 8 done" in page.words
    assert "12 of 12 ended" in page.words
    assert "Runs without a loss" not in page.words
    assert len(page.sheets) == 8


def test_the_table_of_rates_has_edge_and_basin(page: Page) -> None:
    head, *lines = page.tables["rates"]
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    found = {(r["Design"], r["Shape"]): r for r in rows}
    hc = found["HC", "L16 / d64"]
    assert (hc["Best rate"], hc["Loss there"]) == ("0.004", "2.0000")
    assert hc["Optimum"] == "at the high edge"
    assert hc["Basin"] == "≥ 0.50"  # 0.01 nats an octave, of which 0.005 are half one
    assert hc["From, to"] == "0.00283 to (0.004)"
    inside = found["Pre-LN", "L4 / d128"]
    assert (inside["Optimum"], inside["Basin"]) == ("interior", "1.00")
    assert found["HC", "L4 / d128"]["Diverged at"] == "0.004"
    assert "At an edge: HC at L16 / d64." in page.words


def test_only_tuning_runs_make_a_page_too(tmp_path: Path) -> None:
    cell = synthetic.config("hc", SHALLOW, 101, role="tuning")
    synthetic.write_cell(tmp_path / "runs", cell, synthetic.result(cell, 3.0))
    out = report.build([tmp_path / "runs"], tmp_path / "out").parent
    assert "Learning rates" in read(out / "index.html").words
    assert {"tuning.svg", "tuning.png"} <= {path.name for path in out.iterdir()}
    assert not (out / "loss_vs_aspect.svg").exists()
    assert (out / "leaderboard.json").exists()
    assert not (out / "leaderboard.csv").exists()
