"""Text from result files, made fit to be shown."""

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with a mark for every control character, and for those that turn its direction."""
    if text.isprintable():  # most are, and this is twenty times as fast
        return text
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
