"""The verbs: what they print and write, and what they refuse before writing anything."""

import json
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from depthbench.console import Reporting
from depthbench.scaling.rows import COLUMNS
from depthbench.scaling_verbs import scaling_app
from tests.scaling.kit import FULL, law_of, runs_of

app = typer.Typer(cls=Reporting, pretty_exceptions_enable=False)
app.add_typer(scaling_app, name="scaling")


@app.callback()
def _root() -> None:
    pass


def call(*arguments: object):
    return CliRunner().invoke(app, ["scaling", *map(str, arguments)])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    runs = runs_of(law_of("iso-depth"), FULL, np.geomspace(1e5, 1e6, 3), [5e5, 1e6, 2e6], 0.001)
    lines = [",".join([*COLUMNS, "seed"])]
    for values in zip(*(getattr(runs, name) for name in COLUMNS), strict=True):
        lines.append(",".join([*map(repr, map(float, values)), "1"]))
    path = tmp_path_factory.mktemp("rows") / "<b>rows & runs.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def fitted(rows, tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "fitted"
    how = ("--form", "iso-depth", "--starts", 4, "--resamples", 20, "--out", out)
    result = call("fit", rows, *how)
    assert result.exit_code == 0, result.output
    assert str(out / "index.html") in result.output.replace("\n", "")
    return out


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]


def test_fit_writes_law_numbers_picture_and_page(fitted) -> None:
    assert sorted(path.name for path in fitted.iterdir()) == [
        "fit.json",
        "index.html",
        "law.json",
        "residuals.svg",
    ]
    document = json.loads((fitted / "fit.json").read_text())
    constants = {each["name"]: each for each in document["constants"]}
    assert constants["phi"]["value"] == pytest.approx(0.459, rel=0.1)
    low, high = constants["phi"]["interval"]
    assert low < constants["phi"]["value"] < high
    assert document["law"]["kind"] == "fitted"
    assert len(document["runs"]) == 36
    ElementTree.parse(fitted / "residuals.svg")


def test_page_is_self_contained_and_escapes_names(fitted) -> None:
    page = (fitted / "index.html").read_text()
    links = Links()
    links.feed(page)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in links.sources)
    assert len(links.sources) == 1
    assert "&lt;b&gt;rows &amp; runs.csv" in page
    assert "<b>rows" not in page
    assert "the intervals are the result" in page


def test_a_fitted_law_plans_and_marks_what_it_extrapolates(fitted, tmp_path) -> None:
    out = tmp_path / "plan"
    result = call("plan", "--law", fitted, "--compute", "1e20", "--fix", "N=350k", "--out", out)
    assert result.exit_code == 0, result.output
    assert "extrapolated: compute = 1e+20 lies above what was run" in result.output
    ElementTree.parse(out / "plan.svg")
    document = json.loads((out / "plan.json").read_text())
    assert document["best"]["N"] == 350_000
    assert document["extrapolated"]


def test_plan_prints_one_json_document() -> None:
    law = "truncate-or-not/calibrated"
    result = call("plan", "--law", law, "--compute", "1e18", "--fix", "T=8", "--json")
    document = json.loads(result.stdout)
    assert document["law"]["kind"] == "calibrated"
    assert (document["best"]["T"], document["best"]["B"]) == (8, 2)
    assert len(document["answers"]) == 5
    assert {each["verdict"] for each in document["statements"]} == {"meets", "disagrees"}
    table = call("plan", "--law", law, "--compute", "1e18").output
    assert "calibrated, not published" in table
    assert "calibrated to it" in table


def test_plan_of_a_law_with_a_surface_has_a_picture(tmp_path) -> None:
    law = "truncate-or-not/calibrated"
    result = call("plan", "--law", law, "--compute", "1e18", "--fix", "N=1e8", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    first = (tmp_path / "plan.svg").read_bytes()
    call("plan", "--law", law, "--compute", "1e18", "--fix", "N=1e8", "--out", tmp_path)
    assert (tmp_path / "plan.svg").read_bytes() == first
    ElementTree.fromstring(first)


def test_laws_are_listed_with_the_origin_of_every_constant() -> None:
    listed = json.loads(call("laws", "--json").stdout)
    assert set(listed) >= {"iso-depth", "truncate-or-not/calibrated"}
    assert "not known here" in call("laws").output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--law", "iso-dept", "--compute", "1e18"], "unknown law"),
        (["--law", "iso-depth", "--compute", "-1"], "cannot be spent"),
        (["--law", "iso-depth", "--compute", "1e18", "--fix", "K=3"], "write N, D, T or B = value"),
        (["--law", "iso-depth", "--compute", "1e18", "--fix", "T=8", "--fix", "B=2"], "fits"),
        (["--law", "iso-depth", "--compute", "1e18", "--fix", "T=2", "--fix", "B=4"], "exceeds"),
        (["--law", "iso-depth", "--compute", "1e18", "--fix", "N=two"], "positive whole number"),
        (["--law", "iso-depth", "--compute", "1e18", "--fix", "T=1", "--fix", "T=2"], "twice"),
    ],
)
def test_bad_plans_exit_2_and_write_nothing(arguments, reason, tmp_path) -> None:
    out = tmp_path / "out"
    result = call("plan", *arguments, "--out", out)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert not out.exists()


def test_bad_rows_exit_2_and_write_nothing(tmp_path, rows) -> None:
    path, out = tmp_path / "rows.csv", tmp_path / "out"
    path.write_text(rows.read_text().replace(",1.0,1.0,", ",1.0,2.0,", 1))
    result = call("fit", path, "--out", out)
    assert result.exit_code == 2
    assert "line 2: B = 2 exceeds T = 1" in result.stderr
    path.write_text(rows.read_text())
    result = call("fit", path, "--out", out)  # every run has B = T
    assert result.exit_code == 2
    assert "do not determine p, q" in result.stderr
    assert not out.exists()
