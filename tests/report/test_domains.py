"""Domain NLL: what stands together, what is said of the rest, and every number of a set."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from depthbench.report import read_cells
from depthbench.report.domains import (
    SET_COLUMNS,
    Block,
    domain_blocks,
    domain_columns,
    domain_panels,
    domain_rows,
    set_rows,
)
from depthbench.report.lines import lines_of
from depthbench.report.series import looks
from depthbench.report.values import Footnotes
from depthbench.store import Record
from tests.report import cells as synthetic
from tests.report.kit import DOMAINS, domains_document, write_measures

RecordsOf = Callable[[Path], list[Record]]
SHALLOW, DEEP = (4, 128, 352), (16, 64, 176)


@pytest.fixture
def cell(tmp_path: Path) -> Callable[..., None]:
    """Writes one done cell, scored on its domains if `nats` are given."""

    def write(
        design: str,
        shape: tuple[int, int, int],
        nats: float | None,
        seed: int = 1,
        not_measured: dict[str, str] | None = None,
        **changes: Any,
    ) -> None:
        config = synthetic.config(design, shape, seed)
        result = synthetic.result(config, 4.0, not_measured=not_measured or {})
        folder = synthetic.write_cell(tmp_path, config, result)
        if nats is not None:
            values = {name: nats + i for i, name in enumerate(DOMAINS)}
            write_measures(folder, domains=domains_document(values, **changes))

    return write


@pytest.fixture
def blocks_of(records_of: RecordsOf, tmp_path: Path) -> Callable[[], tuple[Any, list[Block]]]:
    def read() -> tuple[Any, list[Block]]:
        records = records_of(tmp_path)
        cells = read_cells(records)
        return (records, cells), domain_blocks(records, cells)

    return read


def texts(rows: list[Any]) -> list[list[str]]:
    return [[value.reason or value.text for value in row.values] for row in rows]


def test_one_panel_a_domain_with_the_interval_as_bars(cell: Any, blocks_of: Any) -> None:
    cell("pre-ln", SHALLOW, 2.0)
    cell("pre-ln", DEEP, 2.5)
    (records, _), [block] = blocks_of()
    coding, stem, math = domain_panels(block, list(looks(records)))
    assert [panel.title for panel in (coding, stem, math)] == ["Coding", "STEM", "Math"]
    [series] = math.values
    assert [value.mean for value in math.values[series].values()] == pytest.approx([4.0, 4.5])
    deep = coding.places[-1]
    assert coding.bars[series, deep] == pytest.approx((2.4, 2.7))
    assert coding.limits[0] < 1.9
    assert coding.limits[1] > 2.7


def test_values_are_means_over_seeds(cell: Any, blocks_of: Any) -> None:
    for seed, nats in ((1, 2.0), (2, 2.4)):
        cell("pre-ln", SHALLOW, nats, seed)
    (records, cells), [block] = blocks_of()
    rows = domain_rows(block, lines_of(records), cells, looks(records), Footnotes())
    [found] = texts(rows)
    named = dict(zip((column.title for column in domain_columns(block)), found, strict=True))
    assert named["Seeds"] == "2"
    assert named["Coding"] == "2.200 ± 0.283"
    assert named["Coding 95 %"] == "2.100 to 2.400"
    assert named["STEM bits/byte"] == "1.600"


def test_other_evaluations_are_apart_and_every_blank_has_its_reason(
    cell: Any, blocks_of: Any
) -> None:
    cell("pre-ln", SHALLOW, 2.0)
    cell("hc", SHALLOW, 2.1)
    cell("lns", SHALLOW, 9.0, evaluation="f" * 16)
    cell("keel", SHALLOW, None)
    cell("moda", SHALLOW, None, not_measured={"domains": "the wheel is altered"})
    (records, cells), blocks = blocks_of()
    assert [block.evaluation for block in blocks] == ["e" * 16, "f" * 16]
    order = list(looks(records))
    drawn = [{s.design for p in domain_panels(b, order) for s in p.values} for b in blocks]
    assert drawn == [{"pre-ln", "hc"}, {"lns"}]
    every = lines_of(records)
    rows = texts(domain_rows(blocks[0], every, cells, looks(records), Footnotes()))
    assert len(rows) == 5
    why = {row[0]: row[3] for row in rows}
    assert why["LNS"].startswith("scored on another evaluation")
    assert why["KEEL"].startswith("not asked for: `depthbench eval CELL`")
    assert why["MoDA"] == "not measured: the wheel is altered"
    assert why["HC"] == "2.100"


def test_sets_have_their_counts_and_absent_ones_their_reason(cell: Any, blocks_of: Any) -> None:
    missing = {"gpqa": "Idavidrein/gpqa: ConnectionError: no route"}
    cell("pre-ln", SHALLOW, 2.0, unavailable=missing)
    _, [block] = blocks_of()
    *scored, absent = texts(set_rows(block, Footnotes()))
    assert [column.title for column in SET_COLUMNS][2:7] == [
        *("Items", "Tokens", "Bytes", "Cut prompts", "Cut targets")
    ]
    assert scored[0] == [
        "The coding set",
        "Coding",
        "1,234",
        "56,789",
        "98,765",
        "7",
        "3",
        "scored",
    ]
    assert [row[1] for row in scored] == ["Coding", "STEM", "Math"]
    assert absent[0] == "gpqa"
    assert absent[-1] == "not there: Idavidrein/gpqa: ConnectionError: no route"
