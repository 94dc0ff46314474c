"""What is said when a file of tensors cannot be written."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from depthbench.errors import CheckpointError


def not_written(what: str, folder: Path, tensors: Iterable[Tensor], reason: str) -> CheckpointError:
    """The error, with the bytes that are needed and those that are free."""
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return CheckpointError(
        f"no {what} could be written to {folder} ({reason}): it needs {needed:,} bytes and "
        f"{_free(folder)} are free; make room and start again, the previous checkpoint is whole"
    )


def _free(folder: Path) -> str:
    with suppress(OSError):
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        return f"{shutil.disk_usage(existing).free:,}"
    return "an unknown number"
