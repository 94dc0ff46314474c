"""Reproducing rows: what is chosen, what is run, and the verdict on two losses."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from depthbench import corpora
from depthbench.cell import main as run_cell
from depthbench.cli import app
from depthbench.config import CellConfig
from depthbench.console import bars
from depthbench.errors import DataError, DepthbenchError, InputError
from depthbench.folder import CellFolder
from depthbench.reproduce import choose, config_of, judged, reproduce, seed_noise
from depthbench.store import records
from depthbench.tables import read_records
from tests.kit import cell_document, tiny_corpus


@pytest.fixture(scope="module")
def cell(tmp_path_factory) -> Path:
    """One trained cell, and the corpus it needs in the cache."""
    place = tmp_path_factory.mktemp("reproduce")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEPTHBENCH_CACHE", str(place / "cache"))
        corpus = tiny_corpus(place, "red green blue wide deep narrow")
        asked = {"probes": ["angular"], "windows": 2}
        config = CellConfig.model_validate(cell_document(corpus, measures=asked))
        folder = place / "cell"
        CellFolder(folder).create(config)
        assert run_cell(folder) == 0
    return folder


@pytest.fixture(autouse=True)
def cache(cell, monkeypatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(cell.parent / "cache"))


def in_process(config: CellConfig, folder: Path) -> None:
    CellFolder(folder).create(config)
    run_cell(folder)


def test_a_row_of_this_machine_comes_back_bit_by_bit(cell, tmp_path) -> None:
    (row,) = records([cell])
    found = reproduce(row, tmp_path, in_process)
    assert (found.verdict, found.agrees, found.differing) == ("bitwise", True, {})
    assert found.loss == row["loss"]
    with pytest.raises(InputError, match="holds a finished run already"):
        reproduce(row, tmp_path, in_process)
    assert not list(tmp_path.rglob("probes"))  # what is asked after training takes time for nothing


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_a_published_table_carries_all_that_a_row_needs(cell, tmp_path, kind) -> None:
    """Neither the folder nor anything but the one line of the table is used."""
    rows = records([cell])
    path = tmp_path / f"rows.{kind}"
    frame = pd.DataFrame(rows)
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        path.write_text(json.dumps({"schema": 1, "rows": rows}))
    (row,) = read_records(path)
    assert config_of(row) == CellFolder(cell).config()
    assert reproduce(row, tmp_path, in_process).verdict == "bitwise"


def test_a_loss_that_was_changed_is_found_out(cell, tmp_path) -> None:
    (row,) = records([cell])
    found = reproduce(row | {"loss": row["loss"] + 1e-6}, tmp_path, in_process, noise=0.1)
    assert (found.verdict, found.agrees) == ("differs", False)
    assert "though machine and versions are the same" in found.text


def test_a_configuration_that_was_changed_is_refused(cell, tmp_path) -> None:
    (row,) = records([cell])
    other = json.loads(row["config"]) | {"seed": 9}
    with pytest.raises(InputError, match="changed after it was written"):
        reproduce(row | {"config": json.dumps(other)}, tmp_path, in_process)
    with pytest.raises(InputError, match="does not carry its configuration"):
        reproduce(row | {"config": None}, tmp_path, in_process)
    for loss in (-3.0, float("inf"), None):
        with pytest.raises(InputError, match="which no finished run has"):
            reproduce(row | {"loss": loss}, tmp_path, in_process)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_is_no_verdict(cell, tmp_path, monkeypatch) -> None:
    (row,) = records([cell])
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "empty"))
    with pytest.raises(DepthbenchError, match=r"is failed, where the published row is done.*hash"):
        reproduce(row, tmp_path, in_process)


def test_the_verb_ends_with_one_where_the_loss_does_not_agree(cell, tmp_path) -> None:
    """On rows that were published, one of them with a loss that nobody gets."""
    rows = records([cell])
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    pd.DataFrame(rows).to_csv(good, index=False)
    pd.DataFrame([rows[0] | {"loss": rows[0]["loss"] + 0.5}]).to_csv(bad, index=False)
    called = CliRunner().invoke(
        app, ["reproduce", str(good), "--out", str(tmp_path / "a"), "--json"]
    )
    assert called.exit_code == 0
    found = json.loads(called.stdout)
    assert (found["verdict"], found["agrees"], found["loss"]) == ("bitwise", True, rows[0]["loss"])
    called = CliRunner().invoke(app, ["reproduce", str(bad), "--out", str(tmp_path / "b")])
    assert called.exit_code == 1
    assert "differs: the loss is" in called.stdout.replace("\n", " ")
    called = CliRunner().invoke(app, ["reproduce", str(good), "--noise", "inf"])
    assert called.exit_code == 2
    assert "give a deviation in nats above 0" in called.stderr


def test_a_known_corpus_is_prepared_for_a_row_and_local_text_is_not(
    cell, tmp_path, monkeypatch
) -> None:
    ref = CellFolder(cell).config().corpus
    prepared: list[str] = []
    monkeypatch.setattr(corpora, "prepare", lambda name, **_: prepared.append(name))
    corpora.prepare_pinned(ref, bars)  # it is there
    assert prepared == []
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="the cell needs corpus"):
        corpora.prepare_pinned(ref, bars)
    assert prepared == []
    known = ref.model_copy(update={"name": "pypi-text"})
    with pytest.raises(DataError, match="the cell needs corpus pypi-text"):
        corpora.prepare_pinned(known, bars)  # what was prepared is not what the row names
    assert prepared == ["pypi-text"]


@pytest.mark.parametrize(
    ("gap", "differing", "noise", "verdict"),
    [
        (0.0, {}, None, "bitwise"),
        (0.0, {"cpu": ("a", "b")}, None, "bitwise"),
        (1e-12, {}, 0.01, "differs"),
        (0.027, {"cpu": ("a", "b")}, 0.01, "within noise"),  # 1.96·√2·0.01 = 0.0277
        (0.028, {"cpu": ("a", "b")}, 0.01, "differs"),
        (1e-9, {"torch": ("2", "3")}, None, "unknown"),
    ],
)
def test_the_verdict(gap, differing, noise, verdict) -> None:
    found = judged("d", 4.0, 4.0 + gap, differing, noise)
    assert found.verdict == verdict
    assert found.agrees == (verdict in ("bitwise", "within noise"))


def row(**changes: Any) -> dict[str, Any]:
    return {"status": "done", "digest": "abc", "cell": "a-L2", "loss": 4.0} | changes


def test_noise_is_pooled_over_what_differs_in_the_seed_alone(cell) -> None:
    """Deviations of (4.0, 4.2) and (3.0, 3.1, 3.2): √((0.02 + 0.02) / 3)."""
    config = CellFolder(cell).config()

    def of(loss: float, seed: int, **changes: Any) -> dict[str, Any]:
        own = config.model_copy(update={"seed": seed} | changes)
        return row(loss=loss, digest=own.digest(), config=own.model_dump_json())

    longer = {"steps": config.steps + 1}
    rows = [of(4.0, 1), of(4.2, 2), of(9.0, 2, threads=2)]  # one seed on other threads is no third
    rows += [of(loss, seed, **longer) for seed, loss in enumerate((3.0, 3.1, 3.2))]
    rows += [
        of(7.0, 1, precision="bf16"),
        row(loss=8.0, config="{}"),
        of(7.0, 9) | row(status="failed"),
    ]
    assert seed_noise(rows) == pytest.approx((0.04 / 3) ** 0.5)
    assert seed_noise(rows[:1] + rows[6:]) is None


def test_what_is_meant_must_be_one_finished_row() -> None:
    one, two = row(digest="abc1", cell="a-L2-s1"), row(digest="abd2", cell="a-L2-s2")
    lost = row(digest="ffff", cell="a-L2-s3", status="failed")
    assert choose([one, lost], None) is one
    assert choose([one, two, lost], "abd") is two
    assert choose([one, two], "a-L2-s1") is one
    with pytest.raises(InputError, match=r"2 finished rows are meant \(a-L2-s1, a-L2-s2\)"):
        choose([one, two], None)
    for several in ("ab", "a-L2"):
        with pytest.raises(InputError, match="2 finished rows are meant"):
            choose([one, two], several)
    with pytest.raises(InputError, match=r"unknown row 'a-L2-s9': did you mean 'a-L2-s"):
        choose([one, two], "a-L2-s9")
    with pytest.raises(InputError, match="no row is done"):
        choose([lost], None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", "a,b\n1,2\n", "has no column design, status, digest, loss"),
        ("rows.csv", "design,status,digest,loss\na,done,d,high\n", "could not convert|loss"),
        ("rows.json", '{"schema": 9, "rows": []}', "no rows of schema 1"),
        ("rows.parquet", "no parquet", "cannot read"),
        ("rows.txt", "", "neither a folder nor"),
    ],
)
def test_what_holds_no_rows_is_refused(tmp_path, name, content, message) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_records(path)


def test_a_folder_without_cells_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="no cell and no rows"):
        read_records(tmp_path)
