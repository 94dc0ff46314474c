"""The report as files: what is said, that nothing is dropped, and that nothing is left blank."""

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from depthbench import report
from depthbench.errors import InputError
from depthbench.report.depth_table import DEPTH_COLUMNS
from depthbench.report.tables import LINE_COLUMNS
from tests.report import cells as synthetic
from tests.report.reader import read

Matrix = Callable[..., Path]
FEW = ("pre-ln", "hc", "lns")
LEADERBOARDS = [f"leaderboard.{form}" for form in ("csv", "parquet", "json", "md")]


def test_all_files_are_written_and_hold_the_same_rows(matrix: Matrix, tmp_path: Path) -> None:
    root = matrix(endings=synthetic.ENDINGS)
    page = report.build([root], tmp_path / "new" / "out")
    assert page == tmp_path / "new" / "out" / "index.html"
    assert {path.name for path in page.parent.iterdir()} == {
        "index.html",
        "rows.csv",
        "rows.parquet",
        *LEADERBOARDS,
        "loss_vs_aspect.svg",
        "loss_vs_aspect.png",
        "efficiency.svg",
        "efficiency.png",
    }
    parquet = pd.read_parquet(page.parent / "rows.parquet")
    csv = pd.read_csv(page.parent / "rows.csv")
    assert len(parquet) == len(csv) == 30
    assert list(parquet.columns) == list(csv.columns)
    assert csv["loss"].to_numpy() == pytest.approx(parquet["loss"].to_numpy(), nan_ok=True)


def test_every_line_is_there_with_its_status(matrix: Matrix, tmp_path: Path) -> None:
    endings = {
        **synthetic.ENDINGS,
        ("hc", 4): None,
        ("lns", 4): {"status": "interrupted", "step": 77},
    }
    page = read(report.build([matrix(endings=endings)], tmp_path / "out"))
    head, *lines = page.tables["lines"]
    assert head == [column.title for column in LINE_COLUMNS]
    assert len(lines) == 30
    assert {len(line) for line in lines} == {len(LINE_COLUMNS)}
    status = {(line[0], line[2]): line[-1] for line in lines if line[-1] != "done"}
    assert status == {
        ("DeepNorm", "L16 / d64"): "diverged at step 412",
        ("mHC", "L8 / d96"): "failed at step 90",
        ("HC", "L4 / d128"): "pending",
        ("LNS", "L4 / d128"): "interrupted at step 77",
    }
    assert "RuntimeError: out of memory" in page.words
    assert "1 diverged, 1 failed, 1 interrupted and 1 pending" in page.words


def test_numbers_in_the_table(matrix: Matrix, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    shape = (8, 96, 256)
    for design, losses in (("pre-ln", (4.0, 4.2)), ("hc", (3.9, 3.9))):
        for seed, loss in enumerate(losses):
            cell = synthetic.config(design, shape, seed)
            synthetic.write_cell(root, cell, synthetic.result(cell, loss))
    page = read(report.build([root], tmp_path / "out"))
    _, hc, pre_ln = page.tables["lines"]
    named = dict(zip((column.title for column in LINE_COLUMNS), hc, strict=True))
    backbone = 8 * (4 * 96 * 96 + 3 * 96 * 256 + 2 * 96)
    added = round(0.081 * backbone)
    total = backbone + 2 * 4096 * 96 + 96 + added
    assert named["Design"] == "HC"
    assert named["Aspect"] == "12"
    assert named["Parameters"] == f"{total / 1e6:.2f}\N{NO-BREAK SPACE}M"
    assert named["Added"] == f"{added / 1e3:.1f}\N{NO-BREAK SPACE}k"
    assert named["Share"] == "8.1 %"
    assert named["Loss"] == "3.9000 ± 0.0000"
    assert named["Seeds"] == "2"
    # one pair of runs more than the mean: t of one degree of freedom, 12.706 · 0.1414 / √2
    assert named["− Pre-LN"] == "−0.2000 ± 0.1414−1.4706 to +1.0706"
    assert named["Bits/byte"] == f"{3.9 / 2.11:.4f}"
    assert named["Speed"] == "0.74 ×"
    assert named["Rate"] == "0.004"
    assert pre_ln[LINE_COLUMNS.index(next(c for c in LINE_COLUMNS if c.title == "Loss"))] == (
        "4.1000 ± 0.1414"
    )


def test_every_blank_and_every_column_is_explained(matrix: Matrix, tmp_path: Path) -> None:
    root = matrix(designs=("pre-ln", "deepnorm", "mhc"), endings=synthetic.ENDINGS)
    page = read(report.build([root], tmp_path / "out"))
    cells = [cell for table in page.tables.values() for line in table[1:] for cell in line]
    assert all(cells)
    blanks = {cell for cell in cells if "—" in cell}
    letters = {cell[-1] for cell in blanks}
    assert len(letters) >= 3
    assert blanks == {f"—none, note{letter}" for letter in letters}
    for letter in letters:
        assert re.search(rf"— {letter} \w", page.words)
    for column in (*LINE_COLUMNS, *DEPTH_COLUMNS):
        assert column.meaning in page.titles
        assert column.meaning in page.words


def test_the_head_says_what_one_seed_cannot_show(matrix: Matrix, tmp_path: Path) -> None:
    words = read(report.build([matrix()], tmp_path / "out")).words
    assert "One seed, so the noise between runs was not measured" in words
    assert "an order within that is no evidence" in words
    assert "All designs ran at one learning rate, tuned for none of them" in words
    assert "mHC adds up to 45 % to the blocks' parameters" in words
    assert "loss falls by more than" in words


def test_several_seeds_are_named_and_spread(matrix: Matrix, tmp_path: Path) -> None:
    words = read(report.build([matrix(designs=FEW, seeds=(1, 2, 3))], tmp_path / "out")).words
    assert "A difference whose interval holds zero is not evidence" in words
    assert "that 3 seeds can detect is" in words
    assert "Bars: sample deviation over seeds" in words


def test_runs_that_learned_little_are_said_to_have(tmp_path: Path) -> None:
    for loss in (6.4312 - 0.49, 6.4312 - 0.51):
        cell = synthetic.config("hc" if loss > 5.93 else "pre-ln", (4, 128, 352), 1)
        synthetic.write_cell(tmp_path / "runs", cell, synthetic.result(cell, loss))
    words = read(report.build([tmp_path / "runs"], tmp_path / "out")).words
    assert "1 of 2 finished runs end less than 0.5 nats below the unigram entropy" in words


def test_what_is_not_comparable_stands_apart(matrix: Matrix, tmp_path: Path) -> None:
    root = matrix(designs=FEW)
    other = matrix(designs=["pre-ln", "hc"], match="total", suite="matched")
    assert other == root
    page = report.build([root], tmp_path / "out")
    words = read(page).words
    assert "They differ in matching." in words
    assert "Group 2 of 2 matching total" in words
    assert (page.parent / "loss_vs_aspect-2.svg").is_file()


def test_a_report_before_any_result(matrix: Matrix, tmp_path: Path) -> None:
    endings = {("pre-ln", layers): None for layers in (4, 8, 16)}
    page = read(report.build([matrix(designs=["pre-ln"], endings=endings)], tmp_path / "out"))
    assert "No run has finished yet" in page.words
    assert [line[-1] for line in page.tables["lines"][1:]] == ["pending"] * 3


def test_a_cell_without_any_config_is_still_listed(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "broken"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{")
    words = read(report.build([tmp_path / "runs"], tmp_path / "out")).words
    assert "runs / broken failed" in words
    assert "config.json" in words


def test_a_design_that_is_not_installed_is_shown_by_name(matrix: Matrix, tmp_path: Path) -> None:
    root = matrix(designs=["pre-ln", "someone-elses"])
    page = read(report.build([root], tmp_path / "out"))
    assert {line[0] for line in page.tables["lines"][1:]} == {"Pre-LN", "someone-elses"}


def test_copies_are_named(tmp_path: Path) -> None:
    cell = synthetic.config("pre-ln", (4, 128, 352), 1)
    for name in ("a", "b"):
        synthetic.write_cell(tmp_path / name, cell, synthetic.result(cell, 4.0))
    words = read(report.build([tmp_path / "a", tmp_path / "b"], tmp_path / "out")).words
    assert "was given more than once and is counted once" in words


def test_text_from_results_stays_text(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    cell = synthetic.config(evil, (4, 128, 352), 1)
    error = "</pre></script><script>document.title = 'taken'</script>"
    synthetic.write_cell(tmp_path / "runs", cell, synthetic.result(cell, None, error=error))
    other = synthetic.config("pre-ln", (4, 128, 352), 1, ladder='"><script>alert(2)</script>')
    synthetic.write_cell(tmp_path / "runs", other, synthetic.result(other, 4.0))
    page = report.build([tmp_path / "runs"], tmp_path / "out")
    html = page.read_text(encoding="utf-8")
    assert html.count("<script") == html.count("</script") == 1
    assert "<img" not in html
    assert evil in read(page).words
    assert error in read(page).words


def test_nothing_outside_the_page_is_asked_for(matrix: Matrix, tmp_path: Path) -> None:
    page = report.build([matrix(designs=FEW)], tmp_path / "out")
    html = page.read_text(encoding="utf-8")
    outside = [a for a in read(page).addresses if not a.startswith("#")]
    figures = {f"{n}.{f}" for n in ("loss_vs_aspect", "efficiency") for f in ("svg", "png")}
    assert set(outside) == {"rows.csv", "rows.parquet", *LEADERBOARDS, *figures}
    assert set(re.findall(r"https?://[^\"' ]+", html)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "@import" not in html
    assert "url(http" not in html


def test_no_cell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no cell under"):
        report.build([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()
