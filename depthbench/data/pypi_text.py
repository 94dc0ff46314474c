"""The documents of `pypi-text`: from pinned wheels to shuffled, divided texts."""

import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from depthbench.data import documents, wheels
from depthbench.data.documents import Document, draw, normalise_code, normalise_prose
from depthbench.data.manifest import Manifest, Source

Members = Iterator[tuple[str, str]]

_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_NEW_LINE_TAG = re.compile(r"<\s*(?:br|/?p)\b[^<>]*>", re.IGNORECASE)


def splits(manifest: Manifest, paths: Mapping[str, Path]) -> dict[str, list[str]]:
    """Texts by split, shuffled: `train`, `validation/<source>` and `held_out/<name>`.

    `paths` are the wheels by project. The same wheels and manifest always give the same texts in
    the same order.
    """
    whole = {name: list(read(name, source, paths)) for name, source in manifest.sources.items()}
    pieces: dict[str, list[tuple[float, str]]] = {"train": []}
    for document in _with_technical_share(manifest, whole):
        split = split_of(document, manifest.sources[document.source])
        for number, piece in enumerate(documents.cut(document.text, manifest.max_characters)):
            place = draw("order", document.source, f"{document.id}#{number}")
            pieces.setdefault(split, []).append((place, piece))
    return {split: [text for _, text in sorted(pieces[split])] for split in sorted(pieces)}


def split_of(document: Document, source: Source) -> str:
    """Where the document belongs: decided by its source and its id or group, not by its text."""
    held_out = source.held_out
    if (
        held_out is not None
        and document.topic in held_out.topics
        and draw(held_out.name, document.source, document.group) < held_out.share
    ):
        return f"held_out/{held_out.name}"
    if draw("validation", document.source, document.group) < source.validation_share:
        return f"validation/{document.source}"
    return "train"


def read(name: str, source: Source, paths: Mapping[str, Path]) -> Iterator[Document]:
    """The documents of one source, normalised, filtered, each text once; not yet cut."""
    members = (
        member
        for wheel in source.wheels
        for member in wheels.members(paths[wheel.project], source.members, source.without)
    )
    seen: set[str] = set()
    for document in _READERS[source.reader](name, source, members):
        if document.text not in seen and _passes(document.text, source):
            seen.add(document.text)
            yield document


def _with_technical_share(
    manifest: Manifest, whole: Mapping[str, list[Document]]
) -> Iterator[Document]:
    """All prose, and as many technical documents, by hash, as make up their share of the bytes."""
    sources, share = manifest.sources, manifest.technical_share
    prose = [d for name, found in whole.items() if not sources[name].technical for d in found]
    technical = [d for name, found in whole.items() if sources[name].technical for d in found]
    yield from prose
    left = sum(len(d.text.encode()) for d in prose) * share / (1 - share)
    for document in sorted(technical, key=lambda d: draw("technical", d.source, d.id)):
        size = len(document.text.encode())
        if size <= left:
            left -= size
            yield document


def _passes(text: str, source: Source) -> bool:
    return (
        len(text) >= source.min_characters
        and documents.digit_share(text) <= source.max_digit_share
        and (source.max_line is None or max(map(len, text.split("\n"))) <= source.max_line)
    )


def _speeches(name: str, _: Source, members: Members) -> Iterator[Document]:
    for member, content in members:
        stem = PurePosixPath(member).stem  # 1790-Washington-1
        yield Document(name, stem, normalise_prose(content), group=stem.split("-")[0])


def _summaries(name: str, _: Source, members: Members) -> Iterator[Document]:
    for _member, content in members:
        for title, article in json.loads(content).items():
            text = normalise_prose(f"{title}\n\n{article['extract']}")
            yield Document(name, title, text, group=title, topic=article["topic"])


def _factbook(name: str, source: Source, members: Members) -> Iterator[Document]:
    """One document for each country and section, of the fields that pass the filters.

    A field that many countries share word for word stands once: otherwise a held-out country
    would be known from the others.
    """
    seen: set[str] = set()
    for member, content in members:
        code = PurePosixPath(member).stem
        sections: dict[str, Any] = json.loads(content)
        country = _country(sections) or code
        for section, fields in sections.items():
            kept = []
            for label, text in _fields(fields):
                unwanted = label.split(", ")[-1] in source.without_fields
                if not unwanted and text not in seen and _passes(text, source):
                    seen.add(text)
                    kept.append(f"{label}: {text}")
            if kept:
                text = "\n\n".join([f"{country}: {section}", *kept])
                yield Document(name, f"{code}/{section}", text, group=code)


def _code(name: str, _: Source, members: Members) -> Iterator[Document]:
    for member, content in members:
        yield Document(name, member, normalise_code(content), group=member)


def _fields(value: Any, label: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Label and plain text of every field; a field's `text` and `note` go by its own name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            own = key in ("text", "note") and label
            yield from _fields(inner, label if own else (*label, key.strip()))
    elif isinstance(value, str):
        yield ", ".join(label), normalise_prose(_plain(value))


def _plain(marked_up: str) -> str:
    return html.unescape(_TAG.sub("", _NEW_LINE_TAG.sub("\n", marked_up)))


def _country(sections: Mapping[str, Any]) -> str:
    names = sections.get("Government", {}).get("Country name", {})
    for form in ("conventional short form", "conventional long form"):
        text = _plain(names.get(form, {}).get("text", "none")).split(" (")[0]
        if text != "none":
            return text
    return ""


_READERS = {"speeches": _speeches, "summaries": _summaries, "factbook": _factbook, "code": _code}
