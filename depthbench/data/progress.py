"""How the preparation of a corpus tells where it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, how much of it is done, and how much there is."""


def silent(stage: str, done: int, total: int) -> None:
    """Tells nobody."""
