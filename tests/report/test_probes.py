"""Layer probes on the page: which cell stands for a design, and that no gap is without reason."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from depthbench import report
from depthbench.report import read_cells
from depthbench.report.parts import Parts, parts_of
from depthbench.report.plates import plate_rows
from depthbench.report.sections import split
from depthbench.report.series import looks
from depthbench.report.values import Footnotes
from depthbench.store import Record
from tests.report import cells as synthetic
from tests.report.kit import domains_document, probe_document, square, write_measures
from tests.report.reader import Page, read

RecordsOf = Callable[[Path], list[Record]]
SHALLOW, DEEP = (4, 128, 352), (16, 64, 176)
CAUSAL = probe_document(
    "causal", {"states": square(4), "outputs": square(4, 0.1)}, {"late_states": 0.25}
)
NO_PATHS = probe_document("paths", reason="norms <b>rescale</b> the stream")


@pytest.fixture
def cell(tmp_path: Path) -> Callable[..., Path]:
    """Writes one cell, done unless `ending` says otherwise, with the probes given."""

    def write(
        design: str,
        shape: tuple[int, int, int],
        loss: float | None,
        probes: list[Any],
        seed: int = 1,
        asked: tuple[str, ...] = (),
        **ending: Any,
    ) -> Path:
        config = synthetic.config(design, shape, seed, measures={"probes": asked})
        result = synthetic.result(config, loss, **ending)
        folder: Path = synthetic.write_cell(tmp_path / "runs", config, result)
        return write_measures(folder, probes)

    return write


@pytest.fixture
def parts(records_of: RecordsOf, tmp_path: Path) -> Callable[[], Parts]:
    def read_parts() -> Parts:
        records = records_of(tmp_path / "runs")
        [section] = split(records)
        return parts_of(section, looks(records), read_cells(records))

    return read_parts


@pytest.fixture
def built(tmp_path: Path) -> Callable[[], tuple[Page, str]]:
    def build() -> tuple[Page, str]:
        path = report.build([tmp_path / "runs"], tmp_path / "out")
        return read(path), path.read_text(encoding="utf-8")

    return build


def test_the_median_seed_of_the_deepest_shape_stands_for_a_design(cell: Any, parts: Any) -> None:
    for seed, loss in ((1, 3.0), (2, 3.2), (3, 3.1)):
        cell("pre-ln", DEEP, loss, [CAUSAL], seed)
        cell("pre-ln", SHALLOW, loss, [CAUSAL], seed)
    [chosen] = parts().probes.chosen
    assert (chosen.cell.record["seed"], chosen.line.shape.layers) == (3, 16)
    assert chosen.note == "seed 3, the median of 3 by loss"


def test_of_two_seeds_it_is_the_better_and_only_probed_ones_count(cell: Any, parts: Any) -> None:
    cell("pre-ln", DEEP, 3.2, [CAUSAL], 1)
    cell("pre-ln", DEEP, 3.1, [CAUSAL], 2)
    cell("pre-ln", DEEP, 2.0, [], 3)
    [chosen] = parts().probes.chosen
    assert chosen.cell.record["seed"] == 2


def test_a_design_lost_at_the_deepest_shape_shows_the_next_and_says_so(
    cell: Any, parts: Any
) -> None:
    cell("pre-ln", SHALLOW, 3.0, [CAUSAL])
    cell("pre-ln", DEEP, 3.0, [CAUSAL])
    cell("hc", SHALLOW, 3.0, [CAUSAL])
    cell("hc", DEEP, None, [], status="diverged", step=7, diverged_step=7)
    cell("lns", SHALLOW, 3.0, [CAUSAL])
    cell("keel", SHALLOW, 3.0, [CAUSAL])
    cell("keel", DEEP, 3.0, [])
    found = {chosen.series.design: chosen for chosen in parts().probes.chosen}
    assert found["pre-ln"].note == ""
    assert (found["hc"].line.shape.layers, found["hc"].note) == (
        4,
        "L16 / d64: diverged at step 7",
    )
    assert found["lns"].note == "L16 / d64: not run"
    assert found["keel"].note.startswith("L16 / d64: not asked for: `depthbench probe CELL`")


def test_a_reason_stands_in_the_place_of_a_map(cell: Any, parts: Any) -> None:
    cell("pre-ln", DEEP, 3.0, [CAUSAL, probe_document("paths", {"weights": square(9)})])
    cell("keel", DEEP, 3.0, [CAUSAL, NO_PATHS])
    cell("hc", DEEP, 3.0, [CAUSAL], asked=("causal", "paths"))
    cell("lns", DEEP, 3.0, [CAUSAL], asked=("paths",), not_measured={"probe paths": "no memory"})
    cell("moda", DEEP, None, [], status="failed", error="lost")
    whole = parts()
    order = looks(whole.section.records)
    assert [column.key for column in whole.probes.columns] == [
        *(("causal", "states"), ("causal", "outputs"), ("paths", "weights"))
    ]
    notes = Footnotes()
    rows = {row.label: row.maps for row in plate_rows(whole.probes, order, notes)}
    assert len(rows) == 5
    assert all(hasattr(drawn, "address") for drawn in rows["Pre-LN"])
    assert rows["KEEL"][2].reason == "norms <b>rescale</b> the stream"
    assert rows["HC"][2].reason.startswith("asked for, but not in the folder: `depthbench probe ")
    assert rows["LNS"][2].reason == "not measured: no memory"
    assert [drawn.reason for drawn in rows["MoDA"]] == ["failed at step 1,200"] * 3


def test_a_link_of_every_line_leads_to_the_sheets_of_its_cells(cell: Any, built: Any) -> None:
    for seed in (1, 2):
        cell("pre-ln", DEEP, 3.0 + seed, [CAUSAL], seed)
    cell("hc", SHALLOW, 3.25, [CAUSAL])
    cell("keel", SHALLOW, 3.5, [])
    page, html = built()
    links = re.findall(r'<a href="#(cell-\d+)">(seed \d)</a>', html)
    named = [(page.sheets[anchor], text) for anchor, text in links]
    assert named == [
        ("HC, L4 / d128, seed 1: 3.2500 nats per token", "seed 1"),
        ("Pre-LN, L16 / d64, seed 1: 4.0000 nats per token", "seed 1"),
        ("Pre-LN, L16 / d64, seed 2: 5.0000 nats per token", "seed 2"),
    ]
    measured = {line[0]: line[-2] for line in page.tables["lines"][1:]}
    letter = re.fullmatch("—none, note(.)", measured["KEEL"])
    assert letter
    assert f"— {letter[1]} not asked for: `depthbench probe CELL`" in page.words
    targets = {address for address in page.addresses if address.startswith("#")}
    assert targets <= {f"#{name}" for name in re.findall(r'id="([^"]+)"', html)}


def test_late_pairs_are_bars_of_their_own_length(cell: Any, built: Any) -> None:
    low = probe_document("causal", {"states": square(4)}, {"late_states": 0.125})
    none = probe_document("causal", {"states": square(2)}, {"late_states": None})
    cell("pre-ln", DEEP, 3.0, [CAUSAL])
    cell("hc", DEEP, 3.0, [low])
    cell("lns", DEEP, 3.0, [none])
    page, html = built()
    rows = {row[0]: row[1:] for row in page.tables["late"][1:]}
    assert rows["Pre-LN"] == ["L16 / d64", "1", "0.250"]
    assert rows["HC"][-1] == "0.125"
    assert rows["LNS"][-1].startswith("—")
    assert "as where there is no pair of late blocks" in page.words
    bars = re.findall(r'class="number bar filled" style="--from: 0.0%; --to: ([\d.]+)%"', html)
    assert sorted(bars) == ["12.5", "25.0"]


def test_all_maps_have_one_scale_and_say_what_they_are(cell: Any, built: Any) -> None:
    for design, value in (("pre-ln", 0.5), ("hc", 0.5)):
        document = probe_document("causal", {"states": square(3, value)}, unit="relative change")
        cell(design, DEEP, 3.0, [document])
    page, _ = built()
    maps = page.images
    first, second = (
        {i["src"] for i in maps if i["alt"].startswith(f"Causal of {name}, L16 / d64, seed 1")}
        for name in ("Pre-LN", "HC")
    )
    assert first == second
    assert len(first) == 1
    assert all(i["alt"].endswith("0.5 to 0.5 relative change") for i in maps if "of HC" in i["alt"])
    [legend] = [i for i in maps if i.get("class") == "scale"]
    assert legend["alt"] == "Colours from 0 to 1 relative change"


def test_a_sheet_holds_every_probe_and_every_set(cell: Any, built: Any) -> None:
    lens = probe_document("lens", {"kl": [2.5, 1.0, 0.0]})
    folder = cell("pre-ln", DEEP, 3.0, [CAUSAL, NO_PATHS, lens])
    write_measures(
        folder, domains=domains_document({"math": 2.25}, unavailable={"gpqa": "offline"})
    )
    page, html = built()
    assert "Lens: kl" in page.words
    assert "0 to 2.5" in page.words
    assert html.count("<polyline") == 1
    assert "Causal: late states" in page.words
    assert "Paths: norms <b>rescale</b> the stream" in page.words
    assert "<b>" not in html
    assert "Probed on 4 held-out windows, 512 tokens of pypi-text" in page.words
    rows = {row[0]: row[1:] for row in page.tables["cell-sets"]}
    assert rows["The math set"] == ["2.250", "2.150 to 2.450", "1.125", "1,234", "56,789", "7", "3"]
    assert rows["gpqa"] == ["not there: offline"]


def test_values_that_are_no_numbers_are_named_and_lose_nothing_else(cell: Any, built: Any) -> None:
    ragged = probe_document("angular", {"distance": [[1.0, 2.0], [3.0]]}, {"mean": 0.5})
    cell("pre-ln", DEEP, 3.0, [ragged, CAUSAL])
    page, _ = built()
    assert "not measured: angular.json is not what a probe writes" in page.words
    assert [i for i in page.images if i["alt"].startswith("Causal, states of Pre-LN")]


def test_without_any_probe_the_page_says_why(cell: Any, built: Any) -> None:
    cell("pre-ln", DEEP, 3.0, [])
    page, _ = built()
    assert "No finished run has layer probes" in page.words
    assert "Pre-LN: not asked for: `depthbench probe CELL`" in page.words
    assert "No finished run has domain scores: not asked for: `depthbench eval CELL`" in page.words
    assert page.images == []
