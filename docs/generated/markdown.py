"""Markdown that says what a value is."""

import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; None is an empty cell."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _cell(value: object) -> str:
    return "" if value is None else " ".join(plain(str(value)).split()).replace("|", "\\|")


def plain(text: str) -> str:
    """Text in which `<name>` is no tag; what stands between backticks stays."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part[:1] == "`" else part.replace("<", "&lt;") for part in parts)


def code(value: object) -> str:
    return f"`{value}`"


def prose(docstring: str | None) -> str:
    """A docstring as paragraphs."""
    return plain(cleandoc(docstring or ""))


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "`")) else ".")


def written(value: Any) -> str:
    """A value as a suite's YAML would have it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, float):
        return f"{value:.1f}" if value == int(value) else re.sub(r"e-0*", "e-", f"{value:g}")
    return str(value)


def arxiv(paper: str) -> str:
    """A link for an arXiv number, else the words themselves."""
    if re.fullmatch(r"\d{4}\.\d{4,5}", paper):
        return f"[arXiv {paper}](https://arxiv.org/abs/{paper})"
    return paper
