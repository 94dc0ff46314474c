"""Rows from strangers: nothing in them reaches a terminal or a page as more than text."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from depthbench.comparison import reading
from depthbench.comparison.reading import printable
from depthbench.errors import InputError
from tests.comparison.kit import call, row, rows_of, told, write

EVIL = "<script>alert(1)</script>\x1b[31m[red]"
LOSSES = {"a": [[5.0, 5.1]], "b": [[5.5, 5.6]]}


class Reader(HTMLParser):
    """Tags, attributes, and what is said."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def evil(tmp_path) -> tuple[Path, Path]:
    lost = {"status": "failed", "loss": None, "error": EVIL, "cell": EVIL}
    before = [row(f"one {EVIL}", options=EVIL, host=EVIL), row("two")]
    after = [row(f"one {EVIL}", options=EVIL, host=f"{EVIL}2"), row("two", **lost), row(EVIL)]
    return write(tmp_path / "before.json", before), write(tmp_path / "after.json", after)


def test_a_page_says_what_it_was_told_and_obeys_nothing(evil, tmp_path) -> None:
    page = tmp_path / "page.html"
    result = call(*evil, "--html", page)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == str(page)
    text = page.read_text()
    found = Reader(text)
    assert "script" not in found.tags
    assert found.text.count("<script>alert(1)</script>") >= 4  # designs, options, host, error
    names = [name for name, _ in found.attributes]
    assert not {"src", "href", "onload", "onerror", "action"} & set(names)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes
    assert ("name", "viewport") in found.attributes
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert "max-width: 620px" in text


def test_a_terminal_is_sent_no_controls_and_no_markup(evil, tmp_path) -> None:
    output = call(*evil).output
    assert "\x1b" not in output
    assert r"\x1b[31m[red]" in output  # to be read, not to be obeyed
    other = write(tmp_path / "other.json", [row(precision=EVIL, ladder="[bold]x")])
    output = call(evil[0], other).output
    assert "\x1b" not in output
    assert r"</script>\x1b[31m[red]" in output


def test_a_setting_in_a_heading_is_text_too(tmp_path) -> None:
    """Two settings of one report head columns of their own."""
    path = write(tmp_path / "two.json", [row(), row(precision="[red]fp8[/red]")])
    assert "A precision [red]fp8[/red]: depth" in call(path, "paper").output


def test_the_document_holds_text(evil) -> None:
    document = told(*evil)
    designs = {d["design"] for d in document["comparisons"][0]["settings"][0]["designs"]}
    assert designs == {r"one <script>alert(1)</script>\x1b[31m[red]", "two"}


def test_an_error_message_is_sent_no_controls_either(tmp_path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"schema": 1, "rows": [row() | {"layers": "\x1b[31mten"}]}))
    result = call(path, "paper")
    assert result.exit_code == 2
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünd × 漢", "plain ünd × 漢"),
        ("a\x07b\r\nc", r"a\x07b\r\nc"),
        ("a\u202eb\u2066", r"a\u202eb\u2066"),
        ("\ud800", r"\ud800"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_what_has_no_picture_is_spelled_out(text, shown) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": 1e300}, "is no loss in nats"),
        ({"loss": -1.0}, "is no loss in nats"),
        ({"layers": 0}, "layers = 0 is not between 1"),
        ({"seed": None}, "has no seed"),
        ({"recipe": None}, "has no recipe"),
        ({"recipe": "[1]"}, "no JSON object of settings"),
        ({"recipe": '{"a": {}}'}, "no JSON object of settings"),
        ({"recipe": "[" * 3000}, "no JSON object of settings"),
        ({"recipe": "{"}, "no JSON object of settings"),
        ({"learning_rate": -1.0}, "is no learning rate"),
        ({"design": "x" * 5000}, "5,000 characters"),
        ({"design_version": 10**30}, "cannot be read as rows"),
    ],
)
def test_rows_that_cannot_be_are_refused_in_a_sentence(tmp_path, changes, message) -> None:
    good = write(tmp_path / "good.csv", rows_of(LOSSES))
    bad = write(tmp_path / "bad.json", [*rows_of(LOSSES), row("c") | changes])
    with pytest.raises(InputError, match=message):
        reading.read_report(str(bad), "B")
    result = call(good, bad)
    assert result.exit_code == 2
    assert result.output.startswith("depthbench: ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.json", "{"),
        ("x.json", "[" * 100_000),
        ("x.json", '{"schema": 1, "rows": [1, 2]}'),
        ("x.json", '{"schema": 1, "rows": []}'),
        ("x.json", '{"schema": 1, "rows": [{"loss": NaN}]}'),
        ("x.csv", ""),
        ("x.csv", "\x00\x01"),
        ("x.csv", "design,status,digest,loss\n"),
        ("x.csv", "design,status,digest,loss\na,done,d,5.0\n"),
        ("x.parquet", "PAR1 but no more PAR1"),
        ("x.txt", "design"),
    ],
)
def test_files_that_hold_no_rows_are_refused_in_a_sentence(tmp_path, name, content) -> None:
    """With code 2: 1 would read as a regression."""
    good = write(tmp_path / "good.csv", rows_of(LOSSES))
    bad = tmp_path / name
    bad.write_text(content)
    for order in ((good, bad), (bad, good)):
        result = call(*order, "--fail-on", "regression")
        assert result.exit_code == 2, (result.output, result.exception)
        assert result.output.startswith("depthbench: ")


def test_a_path_without_rows(tmp_path) -> None:
    good = write(tmp_path / "good.csv", rows_of(LOSSES))
    (tmp_path / "empty").mkdir()
    for path, message in (("empty", "no cell and no rows"), ("nowhere", "does not exist")):
        result = call(good, tmp_path / path)
        assert result.exit_code == 2
        assert message in result.output


def test_huge_files_are_not_read(tmp_path, monkeypatch) -> None:
    good = write(tmp_path / "good.csv", rows_of(LOSSES))
    big = tmp_path / "big.csv"
    with open(big, "wb") as file:
        file.truncate(reading.MOST_BYTES + 1)  # a hole: it takes no disk
    assert "256 MiB" in call(good, big).output
    packed = tmp_path / "packed.parquet"
    long = [row(seed=n, cell=f"{n}{'x' * 3000}") for n in range(1000)]
    pd.DataFrame(long).to_parquet(packed, index=False)
    monkeypatch.setattr(reading, "MOST_BYTES", 2 * packed.stat().st_size)
    assert packed.stat().st_size < 1_000_000  # of three, once unpacked
    assert "MiB of rows are read" in call(good, packed).output
    monkeypatch.setattr(reading, "MOST_ROWS", 3)
    for kind in ("csv", "parquet"):
        many = call(good, write(tmp_path / f"many.{kind}", rows_of(LOSSES)))
        assert many.exit_code == 2
        assert "has 4 rows, and at most 3 are compared" in many.output


def test_a_matrix_that_statistics_cannot_hold_is_refused(tmp_path) -> None:
    rows = [row(f"d{n}") for n in range(101)]
    paths = write(tmp_path / "a.csv", rows), write(tmp_path / "b.csv", rows)
    result = call(*paths)
    assert result.exit_code == 2
    assert "101 designs at 1 shapes with 1 seeds are too many" in result.output
    rows = [row(seed=n, recipe=json.dumps({"beta1": n / 2000})) for n in range(1001)]
    paths = write(tmp_path / "a.csv", rows), write(tmp_path / "b.csv", rows)
    assert "1,001 kinds of rows" in call(*paths).output


def test_a_page_never_takes_the_place_of_a_report(tmp_path) -> None:
    one, other = (write(tmp_path / f"{n}.csv", rows_of(LOSSES)) for n in "ab")
    text = one.read_text()
    for target in (one, tmp_path, tmp_path / "no" / "x.html"):
        assert call(one, other, "--html", target).exit_code == 2
    assert one.read_text() == text
    table = tmp_path / "else.parquet"
    table.write_text("of another project")
    assert call(one, other, "--html", table).exit_code == 2
    assert table.read_text() == "of another project"
    page = tmp_path / "report" / "index.html"
    page.parent.mkdir()
    page.write_text("the report's own")
    (page.parent / "rows.parquet").write_bytes(pd.read_csv(one).to_parquet())
    assert call(page.parent, other, "--html", page).exit_code == 2
    assert page.read_text() == "the report's own"
    assert told(one, other, "--html", tmp_path / "x.html")["schema"] == 1
    assert (tmp_path / "x.html").is_file()
