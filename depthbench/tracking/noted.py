"""What a follower has told of a cell, for the next one."""

from pathlib import Path

from depthbench.errors import DepthbenchError
from depthbench.folder import read_json


def read_noted(path: Path) -> dict[str, int]:
    """Steps by name; none if nothing was noted, or not by us."""
    try:
        document = read_json(path)
    except DepthbenchError:
        return {}
    return {name: step for name, step in document.items() if isinstance(step, int)}
