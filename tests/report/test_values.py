"""How numbers are written."""

import pytest

from depthbench.report.lines import Spread
from depthbench.report.values import Footnotes, count, joined, mean_text, signed, spelled_seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1200, "1,200"),
        (9_999, "9,999"),
        (10_000, "10.0 k"),
        (999_600, "1.00 M"),
        (1_526_272, "1.53 M"),
        (404_600_000, "405 M"),
        (3.2e20, "320 E"),
        (0.125, "0.125"),
    ],
)
def test_counts_have_three_digits_and_a_unit(value: float, text: str) -> None:
    assert count(value).replace("\N{NO-BREAK SPACE}", " ") == text


def test_signs() -> None:
    assert signed(0.0123) == "+0.0123"
    assert signed(-0.0123) == "\N{MINUS SIGN}0.0123"
    assert signed(-0.00001) == signed(0.00001) == "0.0000"


def test_a_deviation_is_only_written_where_there_is_one() -> None:
    assert mean_text(Spread(3.0, None, 1)) == "3.0000"
    assert mean_text(Spread(-0.5, 0.25, 2), 2, sign=True) == "\N{MINUS SIGN}0.50 ± 0.25"


def test_lists_and_times() -> None:
    assert [joined(names) for names in ((), "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
    assert [spelled_seconds(s) for s in (12.4, 180, 9000)] == ["12 s", "3 min", "2.5 h"]


def test_a_reason_keeps_its_letter() -> None:
    notes = Footnotes()
    letters = [notes.blank(reason).letter for reason in ("x", "y", "x")]
    assert letters == ["a", "b", "a"]
    assert [notes.blank(str(i)).letter for i in range(30)][-6:] == [
        "a2",
        "b2",
        "c2",
        "d2",
        "e2",
        "f2",
    ]
