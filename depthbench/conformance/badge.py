"""What `check` last found of a design as it is written now: a record in the cache."""

from hashlib import sha256
from inspect import getsourcefile
from pathlib import Path
from typing import Any

from depthbench import __version__
from depthbench.data import default_cache
from depthbench.errors import DepthbenchError
from depthbench.folder import read_json, write_json
from residuals import Design


def source_hash(design: type[Design]) -> str:
    """16 hex digits of the files that the design and those it derives from are written in."""
    return sha256(b"".join(file.read_bytes() for file in source_files(design))).hexdigest()[:16]


def source_files(design: type[Design]) -> list[Path]:
    """The files that the design and those it derives from are written in, its own first."""
    owners = [owner for owner in design.__mro__ if issubclass(owner, Design)]
    files = (getsourcefile(owner) for owner in owners if owner is not Design)
    return [Path(file) for file in dict.fromkeys(files) if file]


def badge(
    design: type[Design], options: dict[str, Any] | None = None, cache_dir: Path | None = None
) -> dict[str, Any] | None:
    """The report in JSON form, or None: never checked, or changed since, or a damaged record."""
    try:
        return read_json(_path(design.name, source_hash(design), options or {}, cache_dir))
    except DepthbenchError:
        return None


def keep(report: dict[str, Any], cache_dir: Path | None = None) -> Path:
    """Writes a report for `badge` to find; returns its path."""
    path = _path(report["design"], report["source_hash"], report["options"], cache_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, report)
    return path


def _path(name: str, source: str, options: dict[str, Any], cache_dir: Path | None) -> Path:
    chosen = (
        sha256(repr(sorted(options.items())).encode()).hexdigest()[:8] if options else "default"
    )
    folder = (cache_dir or default_cache()) / "conformance"
    return folder / f"{name}-{source}-{chosen}-{__version__}.json"
