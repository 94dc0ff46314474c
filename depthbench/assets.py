"""Where the data files that ship with the project lie: in a checkout, or where a wheel put them."""

from importlib import metadata
from pathlib import Path

from depthbench.errors import DepthbenchError

_CHECKOUT = Path(__file__).resolve().parents[1]


def asset(relative: str) -> Path:
    """Path of `shapes.yaml` or a file under `evals/`, named relative to the repository root.

    A wheel installs these as data files; its RECORD is the only place that knows where they went.
    """
    in_checkout = _CHECKOUT / relative
    if in_checkout.is_file():
        return in_checkout
    for entry in metadata.files("depthbench") or ():
        if entry.as_posix().endswith(f"share/depthbench/{relative}"):
            return Path(str(entry.locate())).resolve()
    raise DepthbenchError(f"{relative} is not part of this installation: reinstall depthbench")
