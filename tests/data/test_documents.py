import pytest

from depthbench.data.documents import cut, digit_share, draw, normalise_code, normalise_prose


def test_prose_has_plain_blanks_and_line_ends() -> None:
    written = "\ufeffOne\u00a0 two\u2009three \r\nfour\r\r\n \n\n five\u200b\t\n"
    assert normalise_prose(written) == "One two three\nfour\n\nfive"


def test_code_keeps_its_indentation() -> None:
    written = "\r\ndef f():  \r\n    if x:\t\n\treturn 1\n \n\n\n    # end\n\n"
    assert normalise_code(written) == "def f():\n    if x:\n\treturn 1\n\n    # end"


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("abcdefghij", ["abcd", "efgh", "ij"]),
        ("abcd", ["abcd"]),
        ("", []),
        ("ab cd ef", ["ab", "cd", "ef"]),
        ("abc\n  d\n  e", ["abc", "  d", "  e"]),
    ],
)
def test_cut_into_pieces_of_four(text: str, pieces: list[str]) -> None:
    assert list(cut(text, 4)) == pieces


def test_cut_prefers_paragraphs_to_lines_unless_the_piece_is_less_than_half() -> None:
    assert list(cut("aaaa bbb\n\nccc\nddd eee", 19)) == ["aaaa bbb\n\nccc", "ddd eee"]
    assert list(cut("aaaa bbbbb\n\nccc\nddd eee", 19)) == ["aaaa bbbbb", "ccc\nddd eee"]


def test_cut_loses_no_word() -> None:
    text = "\n\n".join(" ".join(f"w{p}x{k}" for k in range(p * 7 % 90)) for p in range(60)).strip()
    pieces = list(cut(text, 200))
    assert max(map(len, pieces)) <= 200
    assert " ".join(pieces).split() == text.split()


def test_digit_share() -> None:
    assert digit_share("ab12") == 0.5
    assert digit_share("") == 0


def test_draw_is_uniform_and_depends_on_every_argument() -> None:
    drawn = [draw("validation", "source", str(n)) for n in range(4000)]
    assert all(0 <= value < 1 for value in drawn)
    assert sum(value < 0.15 for value in drawn) / 4000 == pytest.approx(0.15, abs=0.02)
    assert len({draw(*key) for key in (("a", "b", "c"), ("x", "b", "c"), ("a", "x", "c"))}) == 3
    assert draw("a", "b", "c") == draw("a", "b", "c")
