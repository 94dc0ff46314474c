"""The verb: what it finds in reports of known changes, and with which code it ends."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy import stats

from depthbench.store import cell_folders, records
from tests.comparison.kit import call, row, rows_of, told, write, write_cells

# Changes of two seeds at two shapes: a 0.02, 0.04 and 0.10, 0.12; b scatters about nothing.
BEFORE = {"a": [[5.0, 5.1], [4.0, 4.1]], "b": [[5.5, 5.6], [4.5, 4.6]]}
AFTER = {"a": [[5.02, 5.14], [4.10, 4.22]], "b": [[5.51, 5.59], [4.49, 4.61]]}


@pytest.fixture
def before(tmp_path) -> Path:
    return write(tmp_path / "before.csv", rows_of(BEFORE))


@pytest.fixture
def after(tmp_path) -> Path:
    return write(tmp_path / "after.csv", rows_of(AFTER))


def designs(document: dict[str, Any], pair: int = 0) -> dict[str, dict[str, Any]]:
    [setting] = document["comparisons"][pair]["settings"]
    return {design["design"]: design for design in setting["designs"]}


def test_changes_by_hand(before, after) -> None:
    found = designs(told(before, after))["a"]
    shallow, deep = found["cells"]
    assert (shallow["layers"], shallow["before"], shallow["after"]) == (2, 5.05, 5.08)
    assert shallow["change"]["value"] == pytest.approx(0.03)
    assert deep["change"]["value"] == pytest.approx(0.11)
    # Each cell has a variance of 2e-4 on one degree of freedom: 2e-4 on two.
    half = stats.t.ppf(0.975, 2) * (2e-4 / 2) ** 0.5
    assert shallow["change"]["high"] == pytest.approx(0.03 + half)
    whole = stats.t.ppf(0.975, 2) * (2e-4 / 4) ** 0.5
    assert found["change"]["value"] == pytest.approx(0.07)
    assert found["change"]["low"] == pytest.approx(0.07 - whole)
    p = 2 * stats.t.sf(0.07 / (2e-4 / 4) ** 0.5, 2)
    assert found["change"]["p"] == pytest.approx(p)
    assert found["change"]["p_holm"] == pytest.approx(2 * p)  # of two designs, the smaller
    assert found["verdict"] == "worse"


def test_the_terminal_tells_the_same(before, after) -> None:
    result = call(before, after)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert "  ! a v1: worse by 0.0700 nats, beyond noise." in lines
    [design] = [line.split() for line in lines if line.startswith("a v1") and "worse" in line]
    assert design[2:6] == ["+0.0700", "+0.0396", "to", "+0.1004"]
    [shallow] = [line.split() for line in lines if line.startswith("a v1") and "L2 / d64" in line]
    assert shallow[5:8] == ["5.0500", "5.0800", "+0.0300"]


def test_a_planted_regression_fails_where_it_is_asked_for(before, after) -> None:
    assert call(before, after).exit_code == 0
    assert call(before, after, "--fail-on", "regression").exit_code == 1
    document = told(before, after, "--fail-on", "regression", code=1)
    assert {name: bool(d["regression"]) for name, d in designs(document).items()} == {
        "a": True,
        "b": False,
    }
    assert call(after, before, "--fail-on", "regression").exit_code == 0  # which is better


@pytest.mark.parametrize(("tolerance", "code"), [(0.0699, 1), (0.0701, 0)])
def test_what_is_within_the_tolerance_is_no_regression(before, after, tolerance, code) -> None:
    assert (
        call(before, after, "--fail-on", "regression", "--tolerance", tolerance).exit_code == code
    )


def test_a_copy_is_equal(before, tmp_path) -> None:
    copy = write(tmp_path / "copy.csv", rows_of(BEFORE))
    document = told(before, copy, "--fail-on", "regression", "--tolerance", 0)
    assert [d["verdict"] for d in designs(document).values()] == ["equal", "equal"]
    assert not document["regressed"]
    assert [d["change"]["value"] for d in designs(document).values()] == [0.0, 0.0]
    output = call(before, copy).output
    assert "no interval" not in output
    assert "No rank moved." in output


def test_single_seeds_are_judged_by_size_only_where_a_tolerance_is_given(tmp_path) -> None:
    a = write(tmp_path / "a.csv", rows_of({"a": [[5.0], [4.0]], "b": [[5.5], [4.5]]}))
    b = write(tmp_path / "b.csv", rows_of({"a": [[5.0], [4.2]], "b": [[5.5], [4.5]]}))
    assert call(a, b, "--fail-on", "regression").exit_code == 0  # 0.1 ± 1.3: two cells
    document = told(a, b, "--fail-on", "regression", "--tolerance", 0.15, code=1)
    assert designs(document)["a"]["regression"] == (
        "worse by 0.2000 nats at L4 / d48, above the tolerance; no interval"
    )
    assert designs(document)["b"]["regression"] is None
    assert call(a, b, "--fail-on", "regression", "--tolerance", 0.25).exit_code == 0
    assert call(b, a, "--fail-on", "regression", "--tolerance", 0.0).exit_code == 0
    one = write(tmp_path / "one.csv", rows_of({"a": [[5.0]]}))
    risen = write(tmp_path / "risen.csv", rows_of({"a": [[5.1]]}))
    assert designs(told(one, risen))["a"]["verdict"] == "unknown"
    assert call(one, risen, "--fail-on", "regression", "--tolerance", 0.05).exit_code == 1


@pytest.mark.parametrize("status", ["diverged", "failed", "interrupted"])
def test_a_run_that_finishes_no_longer_is_a_regression(before, tmp_path, status) -> None:
    rows = rows_of(BEFORE)
    rows[3] |= {"status": status, "loss": None, "error": "the loss is nan"}
    lost = write(tmp_path / "lost.csv", rows)
    document = told(before, lost, "--fail-on", "regression", "--tolerance", 9, code=1)
    found = designs(document)["a"]
    assert (found["num_lost"], found["regression"]) == (1, "1 run finishes no longer")
    [cell] = [cell for cell in found["cells"] if cell["lost"]]
    assert cell["lost"] == [{"seed": 2, "status": status, "error": "the loss is nan"}]
    assert f"seed 2 lost: {status} in B (the loss is nan)" in call(before, lost).output
    document = told(lost, before, "--fail-on", "regression")
    [cell] = [cell for cell in designs(document)["a"]["cells"] if cell["gained"]]
    assert cell["gained"][0]["status"] == status


def test_what_is_gone_or_new_is_named_and_fails_nothing(before, tmp_path) -> None:
    rows = [r for r in rows_of(BEFORE) if r["design"] == "a" and r["seed"] == 1]
    other = write(tmp_path / "other.csv", [*rows, row("c", 0, 1, 9.0), row("c", 0, 3, 9.0)])
    document = told(before, other, "--fail-on", "regression")
    [pair] = document["comparisons"]
    assert [d["design"] for d in pair["gone_designs"]] == ["b"]
    assert [d["design"] for d in pair["new_designs"]] == ["c"]
    [setting] = pair["settings"]
    assert len(setting["gone_runs"]) == 2 + 4
    output = call(before, other).output
    assert "Only in B: c v1 at L2 / d64, seeds 1 and 3." in output
    assert "a v1 at L4 / d48, seed 2;" in output
    assert "Designs only in A: b v1." in output


def test_ranks_that_moved(tmp_path) -> None:
    noise = [0.0, 1e-4, -2e-4]
    losses = {name: [[level + e for e in noise]] for name, level in (("a", 5.0), ("b", 5.5))}
    losses["a"][0][1] += 1e-4
    swapped = {"a": losses["b"], "b": losses["a"]}
    a, b = (write(tmp_path / f"{i}.csv", rows_of(r)) for i, r in enumerate((losses, swapped)))
    found = designs(told(a, b))
    assert {n: (d["rank_before"], d["rank_after"]) for n, d in found.items()} == {
        "a": (1, 2),
        "b": (2, 1),
    }
    assert "Ranks moved: a v1 1 → 2; b v1 2 → 1." in call(a, b).output


def test_another_version_is_another_design(before, tmp_path) -> None:
    rows = rows_of(AFTER)
    rows = [r | {"design_version": 2} if r["design"] == "a" else r for r in rows]
    newer = write(tmp_path / "newer.csv", rows)
    document = told(before, newer, "--fail-on", "regression")
    assert list(designs(document)) == ["b"]
    [pair] = document["comparisons"]
    assert [(d["design"], d["design_version"]) for d in pair["gone_designs"]] == [("a", 1)]
    assert [(d["design"], d["design_version"]) for d in pair["new_designs"]] == [("a", 2)]
    sentence = "a has version 1 in A and 2 in B: another design; --ignore-version compares them."
    assert sentence in call(before, newer).output
    document = told(before, newer, "--ignore-version", "--fail-on", "regression", code=1)
    assert designs(document)["a"]["change"]["value"] == pytest.approx(0.07)
    assert document["comparisons"][0]["new_designs"] == []
    assert "in B: taken for one design." in call(before, newer, "--ignore-version").output


def test_every_report_is_compared_with_the_first(before, after, tmp_path) -> None:
    copy = write(tmp_path / "copy.json", rows_of(BEFORE))
    document = told(before, copy, after)
    assert [(p["before"], p["after"]) for p in document["comparisons"]] == [("A", "B"), ("A", "C")]
    assert [p["regressed"] for p in document["comparisons"]] == [False, True]
    assert [r["source"] for r in document["reports"]] == list(map(str, (before, copy, after)))


def test_every_form_gives_the_same(tmp_path) -> None:
    """A folder of cells, and the rows read from it as each kind of file."""
    folders = [write_cells(tmp_path / name, r) for name, r in (("x", BEFORE), ("y", AFTER))]
    read = [records(cell_folders(folder)) for folder in folders]
    expected = told(*folders)["comparisons"]
    assert expected[0]["settings"][0]["designs"][0]["change"]["value"] == pytest.approx(0.07)
    for kind in ("csv", "parquet", "json"):
        files = [write(tmp_path / f"{n}.{kind}", rows) for n, rows in enumerate(read)]
        assert told(*files)["comparisons"] == expected
        assert told(folders[0], files[1])["comparisons"] == expected


def test_runs_of_tuning_are_left_out(before, tmp_path) -> None:
    tried = [r | {"role": "tuning", "loss": 1.0} for r in rows_of(AFTER)]
    mixed = write(tmp_path / "mixed.csv", [*tried, *rows_of(AFTER)])
    document = told(before, mixed)
    assert designs(document)["a"]["change"]["value"] == pytest.approx(0.07)
    assert (document["reports"][1]["num_rows"], document["reports"][1]["num_tuning"]) == (8, 8)
    assert "8 rows, 8 of tuning left out" in call(before, mixed).output
    only = write(tmp_path / "only.csv", tried)
    assert call(before, only).exit_code == 2
    assert "no row to compare" in call(before, only).output


def test_of_several_learning_rates_the_best_stands(before, tmp_path) -> None:
    worse = [r | {"learning_rate": 1e-2, "loss": r["loss"] + 1} for r in rows_of(AFTER)]
    both = write(tmp_path / "both.csv", [*worse, *rows_of(AFTER, learning_rate=2e-3)])
    found = designs(told(before, both))["a"]
    assert found["change"]["value"] == pytest.approx(0.07)
    assert found["cells"][0]["learning_rates"] == [[1e-3], [2e-3]]
    assert "learning rate 0.001 → 0.002" in call(before, both).output


def test_one_report_twice_is_a_mistake(before, tmp_path) -> None:
    link = tmp_path / "link.csv"
    link.symlink_to(before)
    for other in (before, link):
        result = call(before, other)
        assert result.exit_code == 2
        assert "A and B are both" in result.output
    assert call(before).exit_code == 2
    assert call("paper", "paper").exit_code == 2


@pytest.mark.parametrize("tolerance", ["-0.1", "nan", "inf"])
def test_a_tolerance_is_a_number_of_nats(before, after, tolerance) -> None:
    result = call(before, after, "--tolerance", tolerance)
    assert result.exit_code == 2
    assert "give nats, 0 or more" in result.output


def test_a_repeated_run_is_refused(before, tmp_path) -> None:
    rows = rows_of(AFTER)
    twice = write(tmp_path / "twice.csv", [*rows, rows[0] | {"path": "runs/elsewhere"}])
    result = call(before, twice)
    assert result.exit_code == 2
    assert "runs/elsewhere" in result.output


def test_the_document_has_a_schema_and_whole_rows(before, after) -> None:
    document = told(before, after)
    assert document["schema"] == 1
    assert set(document) == {
        *("schema", "tolerance", "ignore_version", "comparable", "regressed"),
        *("reports", "comparisons", "alone"),
    }
    assert document["alone"] == []
    [pair] = document["comparisons"]
    assert set(pair) == {
        *("before", "after", "comparable", "regressed", "differing", "settings", "not_compared"),
        *("versions", "new_designs", "gone_designs"),
    }
    json.dumps(document, allow_nan=False)


def test_a_report_without_an_old_column_is_read(before, after) -> None:
    frame = pd.read_csv(after).drop(columns=["role", "loop", "error"])
    frame.to_csv(after, index=False)
    assert designs(told(before, after))["a"]["change"]["value"] == pytest.approx(0.07)
