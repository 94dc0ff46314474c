"""The one exception of this package, and the sentence for an unknown name."""

from collections.abc import Iterable
from difflib import get_close_matches


class DesignError(ValueError):
    """A design, or a use of one, that cannot work: what, the value, and what to do."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Sentence for a name that is not among `known`: the nearest matches, or all of them."""
    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    if near:
        return f"unknown {kind} {name!r}: did you mean {' or '.join(map(repr, near))}?"
    return f"unknown {kind} {name!r}: known are {', '.join(names) or 'none'}"
