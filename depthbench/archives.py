"""Members of archives, read by name into memory: nothing is unpacked to the disk."""

import gzip
from io import BytesIO
from zipfile import ZipFile

from depthbench.errors import DataError

MOST_BYTES = 256 * 2**20


def member(archive: ZipFile, name: str) -> bytes:
    """One member of a zip file. Raises `DataError` for more than 256 MiB, `KeyError` for none."""
    num_bytes = archive.getinfo(name).file_size  # more than it says is never read
    if num_bytes > MOST_BYTES:
        raise DataError(f"{archive.filename}: {name} has {num_bytes:,} bytes, {_TOO_MANY}")
    return archive.read(name)


def gunzipped(content: bytes, where: str) -> bytes:
    """What a gzip file holds. Raises `DataError` for more than 256 MiB."""
    with gzip.GzipFile(fileobj=BytesIO(content)) as file:
        found = file.read(MOST_BYTES + 1)
    if len(found) > MOST_BYTES:
        raise DataError(f"{where} has more than {MOST_BYTES:,} bytes once unpacked, {_TOO_MANY}")
    return found


_TOO_MANY = f"and at most {MOST_BYTES:,} are read of one: it is not what depthbench wants"
