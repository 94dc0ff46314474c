"""Text that someone else wrote, made fit for a terminal."""

import unicodedata

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str, keep: str = "") -> str:
    """With every character escaped that has no picture: controls, directions, halves of pairs.

    Those in `keep` stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode()
        if unicodedata.category(c) in _UNSEEN and c not in keep
        else c
        for c in text
    )
