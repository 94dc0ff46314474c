"""Every column of a result table is described, and nothing else is."""

import csv
from pathlib import Path

import pytest

from depthbench import cell, store
from depthbench.columns import COLUMNS, FAMILIES, described
from depthbench.config import CellConfig
from depthbench.folder import CellFolder
from tests.docs.kit import ROOT
from tests.kit import cell_document, tiny_corpus


def test_every_column_has_a_type_and_a_meaning_of_its_own() -> None:
    known = [*COLUMNS.values(), *FAMILIES.values()]
    assert {column.dtype for column in known} == {"str", "Int64", "float64", "boolean"}
    assert all(len(column.meaning) > 4 for column in known)
    assert len({column.meaning for column in known}) == len(known)
    assert {name: column.dtype for name, column in COLUMNS.items()} == store.COLUMNS


def test_every_column_of_a_measured_cell_is_described_by_name_or_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tiny_corpus(tmp_path, "a row says in its columns what one cell was and came to")
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(corpus.path.parents[1]))
    monkeypatch.setattr(cell._StopRequest, "install", lambda self: None)
    measures = {"probes": ["angular", "causal", "pruning"], "windows": 2}
    folder = CellFolder(tmp_path / "cell")
    folder.create(CellConfig.model_validate(cell_document(corpus, measures=measures)))
    assert cell.main(folder.path) == 0
    frame = store.rows([folder.path])
    beyond = [name for name in frame.columns if name not in COLUMNS]
    assert {name.partition("/")[0] for name in beyond} == {"loss", "probe"}
    for name in frame.columns:
        column = described(name)
        assert column is not None, name
        assert str(frame[name].dtype) == column.dtype, name


def test_every_column_of_the_committed_results_is_described() -> None:
    tables = sorted((ROOT / "reports").glob("*/rows.csv"))
    assert tables
    for path in tables:
        with open(path, newline="", encoding="utf-8") as file:
            names = next(csv.reader(file))
        assert [name for name in names if described(name) is None] == [], path


@pytest.mark.parametrize("name", ["los", "loss/", "probe", "domains/math", "lossy/wiki"])
def test_a_foreign_column_is_not_described(name: str) -> None:
    assert described(name) is None


def test_a_member_of_a_family_is_described_as_the_family() -> None:
    assert described("domain_low/math") is FAMILIES["domain_low/<name>"]
    assert described("domain/math") is FAMILIES["domain/<name>"]
    assert described("probe/causal/late_states") is FAMILIES["probe/<name>/<what>"]
