"""Matplotlib's SVG made fit for a page: no stray ids, colours that follow the scheme."""

import re
from collections.abc import Mapping
from xml.etree import ElementTree

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
SERIES_GID = "series:"
_REFERENCE = re.compile(r"#([\w-]+)")

ElementTree.register_namespace("", _SVG)
ElementTree.register_namespace("xlink", _XLINK)


def inline(source: str, prefix: str, title: str, variables: Mapping[str, str]) -> str:
    """`source` without header, metadata and fixed size.

    Ids get `prefix`, a `series:N` id becomes `data-series="N"`, and colours that are keys of
    `variables` become its values.
    """
    root = ElementTree.fromstring(source)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    used = {match for element in root.iter() for match in _references(element)}
    for element in root.iter():
        _rename(element, prefix, used)
        if "style" in element.attrib:
            element.set("style", _recoloured(element.attrib["style"], variables))
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", title)
    return ElementTree.tostring(root, encoding="unicode")


def _references(element: ElementTree.Element) -> list[str]:
    return [
        match
        for name, value in element.attrib.items()
        if name.endswith("href") or "url(#" in value
        for match in _REFERENCE.findall(value)
    ]


def _rename(element: ElementTree.Element, prefix: str, used: set[str]) -> None:
    own = element.attrib.pop("id", "")
    if own.startswith(SERIES_GID):
        element.set("data-series", own.removeprefix(SERIES_GID))
    elif own in used:
        element.set("id", prefix + own)
    for name, value in element.attrib.items():
        if name.endswith("href"):
            element.set(name, value.replace("#", f"#{prefix}", 1))
        elif "url(#" in value:
            element.set(name, value.replace("url(#", f"url(#{prefix}"))


def _recoloured(text: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"#[0-9a-f]{6}", lambda m: variables.get(m[0], m[0]), text)
