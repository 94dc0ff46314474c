"""The published numbers: whole, of shapes that exist, and never on one axis with ours."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from depthbench import report
from depthbench.cli import app
from depthbench.report import paper
from depthbench.report.lines import best_lines, lines_of
from depthbench.report.series import looks
from depthbench.shapes import load_ladders
from tests.report import cells as synthetic
from tests.report.kit import domains_document, probe_document, write_measures
from tests.report.reader import read

DESIGNS = {"pre-ln", "sandwich-ln", "lns", "deepnorm", "keel", "hc", "mhc", "moda"} | {
    *("full-attnres", "block-attnres")
}


def test_it_holds_ten_designs_of_the_shapes_of_the_ladders() -> None:
    totals, backbones = paper.document()["loss"]
    assert set(totals["values"]) == DESIGNS
    ladders = load_ladders()
    for table, name in ((totals, "400m"), (backbones, "300m-backbone")):
        known = {f"{shape.layers}x{shape.d_model}" for shape in ladders[name].shapes}
        assert {shape for by in table["values"].values() for shape in by} <= known
    assert sum(len(by) for by in totals["values"].values()) == 10 * 5 + 2 * 2
    assert [set(by) for by in paper.document()["domains"].values()] == [DESIGNS] * 3
    assert set(paper.document()["provenance"]) == {"source", "setting", "known_disagreements"}


def test_differences_are_to_pre_ln_and_missing_where_it_is() -> None:
    own = looks(paper.all_records())
    [losses, coding, *_] = paper.pairs(best_lines([]), [], list(own))
    totals, backbones = losses.published
    hc = next(series for series in own if series.design == "hc")
    found = {shape.layers: round(v.mean, 6) for shape, v in totals.values[hc].items()}
    assert found == {16: -0.03, 20: -0.043, 24: -0.063, 28: -0.06, 32: -0.082}
    assert paper.without_reference(totals) == (
        "No difference at L42 / d800 and L70 / d640: no Pre-LN was published there."
    )
    assert {shape.layers: round(v.mean, 6) for shape, v in backbones.values[hc].items()} == {
        16: -0.032,
        24: -0.063,
        32: -0.063,
        42: -0.12,
    }
    first = next(iter(coding.published[0].values[hc].values()))
    assert first.mean == pytest.approx(3.676 - 3.891)
    assert losses.here is None


def test_ours_stands_beside_on_axes_of_its_own(record: Any) -> None:
    rows = [
        record(design=design, layers=layers, d_model=width, loss=loss)
        for design, losses in (("pre-ln", (5.0, 5.1)), ("hc", (4.9, 4.7)))
        for (layers, width), loss in zip(((4, 128), (16, 64)), losses, strict=True)
    ]
    own = looks([*rows, *paper.all_records()])
    losses = paper.pairs(best_lines(lines_of(rows)), [], list(own))[0]
    assert losses.here is not None
    hc = next(series for series in own if series.design == "hc")
    assert [v.mean for v in losses.here.values[hc].values()] == pytest.approx([-0.1, -0.4])
    published = {shape.layers for panel in losses.published for shape in panel.places}
    assert {shape.layers for shape in losses.here.places} == {4, 16}
    assert published == {16, 20, 24, 28, 32, 42, 70, 84}
    assert all(panel.limits != losses.here.limits for panel in losses.published)


def test_the_page_marks_the_other_setting(tmp_path: Path) -> None:
    late = probe_document("causal", {"states": [[0.0]]}, {"late_states": 0.25})
    for design, loss in (("pre-ln", 5.0), ("hc", 4.9)):
        cell = synthetic.config(design, (16, 64, 176), 1)
        folder = synthetic.write_cell(tmp_path / "runs", cell, synthetic.result(cell, loss))
        write_measures(folder, [late], domains_document({"coding": 3.0}))
    page = read(report.build([tmp_path / "runs"], tmp_path / "out", "paper"))
    assert "Another setting: 405M parameters, FineWeb-Edu" in page.words
    assert "no number of one with a number of the other" in page.words
    rows = {(row[0], row[1]): row[2:] for row in page.tables["paper"][1:]}
    assert rows["HC", "Late pairs, causal"][0] == "about 0.07"
    assert rows["HC", "Late pairs, causal"][2] == "L16 / d64: 0.25"
    assert rows["mHC", "Effective rank of the composed mixing, of 4"][2].startswith("—")
    assert "not run here" in page.words
    published = {row[0]: row[1:] for row in page.tables["published"] if len(row) == 8}
    assert published["Pre-LN"][:5] == ["2.759", "2.759", "2.765", "2.774", "2.782"]
    assert published["HC"][6] == "2.682"


def test_without_being_asked_nothing_is_published(tmp_path: Path) -> None:
    cell = synthetic.config("pre-ln", (16, 64, 176), 1)
    synthetic.write_cell(tmp_path / "runs", cell, synthetic.result(cell, 5.0))
    page = read(report.build([tmp_path / "runs"], tmp_path / "out"))
    assert "paper" not in page.tables
    assert "published" not in page.tables
    assert "FineWeb" not in page.words


def test_only_what_is_known_can_be_laid_beside(tmp_path: Path) -> None:
    cell = synthetic.config("pre-ln", (16, 64, 176), 1)
    synthetic.write_cell(tmp_path / "runs", cell, synthetic.result(cell, 5.0))
    runs, out = str(tmp_path / "runs"), str(tmp_path / "out")
    refused = CliRunner().invoke(app, ["report", runs, "--out", out, "--against", "nobody"])
    assert refused.exit_code == 2
    assert not Path(out).exists()
    done = CliRunner().invoke(app, ["report", runs, "--out", out, "--against", "paper"])
    assert done.exit_code == 0
    assert "Another setting" in read(Path(done.output.strip())).words
