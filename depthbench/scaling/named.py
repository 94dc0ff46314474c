"""Laws by name, and laws in files."""

from collections.abc import Iterator
from pathlib import Path

from depthbench.errors import InputError
from depthbench.inputs import read_yaml, validated
from depthbench.scaling.law import Law

_LAWS = Path(__file__).parent / "laws"
LAW_FILE = "law.json"


def named_laws() -> dict[str, Law]:
    """The laws that ship with the package, by name."""
    return {law.name: law for law in _shipped()}


def open_law(name: str) -> Law:
    """A shipped law, a file that holds one, or a folder that a fit was written to."""
    shipped = named_laws()
    if name in shipped:
        return shipped[name]
    path = Path(name)
    path = path / LAW_FILE if path.is_dir() else path
    if path.is_file():
        return validated(Law, read_yaml(path), str(path))
    from residuals import unknown  # imports torch: only once something is wrong

    raise InputError(f"{unknown('law', name, shipped)} Or name a file, or the folder of a fit.")


def _shipped() -> Iterator[Law]:
    for path in sorted(_LAWS.glob("*.yaml")):
        yield validated(Law, read_yaml(path), str(path))
