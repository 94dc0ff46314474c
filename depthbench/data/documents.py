"""Documents, and what happens to every one of them before it becomes tokens."""

import hashlib
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Document:
    """One text of a source. Documents of one `group` are never divided between splits."""

    source: str
    id: str
    text: str
    group: str
    topic: str = ""


def draw(purpose: str, source: str, key: str) -> float:
    """A number in [0, 1) that depends on its arguments alone: selection without a generator."""
    digest = hashlib.sha256("\0".join((purpose, source, key)).encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


_INVISIBLE = re.compile("[\u200b\u200e\u200f\u2060\ufeff\u00ad]")
_LINE_END = re.compile("\r\n?|[\u0085\u2028\u2029]")
_BLANK = re.compile("[\t \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
_TRAILING = re.compile("[\t \u00a0\f\v]+(?=\n|$)")
_EMPTY_LINES = re.compile("\n{3,}")


def normalise_prose(text: str) -> str:
    """Line ends `\\n`, single blanks, at most one empty line, nothing blank at either end."""
    text = _BLANK.sub(" ", _LINE_END.sub("\n", _INVISIBLE.sub("", text)))
    return _EMPTY_LINES.sub("\n\n", text.replace(" \n", "\n").replace("\n ", "\n")).strip()


def normalise_code(text: str) -> str:
    """Line ends `\\n`, no trailing blanks, at most one empty line; indentation stays."""
    text = _TRAILING.sub("", _LINE_END.sub("\n", _INVISIBLE.sub("", text)))
    return _EMPTY_LINES.sub("\n\n", text).strip("\n")


def digit_share(text: str) -> float:
    """Share of the characters that are decimal digits."""
    return sum(map(text.count, string.digits)) / max(1, len(text))


def cut(text: str, max_characters: int) -> Iterator[str]:
    """`text` in pieces of at most `max_characters`, divided at the last paragraph, line or word.

    A division in the first half of a piece is passed over for a finer one, so that a heading
    before a long paragraph does not become a piece of its own.
    """
    while len(text) > max_characters:
        end = max_characters
        for mark in ("\n\n", "\n", " "):
            found = text.rfind(mark, max_characters // 2, max_characters + 1)
            if found > 0:
                end = found
                break
        yield text[:end].rstrip()
        text = text[end:].lstrip(" ") if text[end : end + 1] == " " else text[end:].lstrip("\n")
    if text:
        yield text
