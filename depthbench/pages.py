"""Templates of pages: what is filled in is escaped, and a name that nobody gave is an error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def environment(folder: Path, finalize: Callable[[Any], Any] | None = None) -> Environment:
    """Of the templates in `folder`; `finalize` sees every value before it is written."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
