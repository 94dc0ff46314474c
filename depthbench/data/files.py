"""Files that are either whole or absent, and their hashes."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends without an error.

    Written aside in the same folder, flushed to the disk, then renamed: a reader or a crash sees
    the old file or the new one, never half of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)  # mkstemp makes it unreadable to others who share the cache
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def write(path: Path, content: bytes) -> None:
    """Put `content` at `path`, whole or not at all."""
    with replacing(path) as file:
        file.write(content)


def sha256(path: Path) -> str:
    """Hex SHA-256 of the file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
