"""The trackers that are known, and whether one is installed."""

from importlib.util import find_spec
from typing import Literal

from depthbench.errors import InputError

Kind = Literal["tensorboard", "wandb"]


def installed(kind: Kind) -> Kind:
    """The tracker, or an `InputError` that says how to install it. Imports nothing of it."""
    if find_spec(kind) is None:
        raise InputError(f"{kind} is not installed: pip install 'depthbench[{kind}]'")
    return kind
