"""The files of one cell, and who may write them.

Whatever is in the folder was written whole: JSON goes aside, to disk, and then into place; metrics
grow by one synced line at a time. The process that runs a cell holds a lock that dies with it, so
that a cell is never run twice at once and no lock is ever stale.
"""

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn, get_args

from pydantic import ValidationError

from depthbench.config import CellConfig
from depthbench.errors import DepthbenchError, InputError

SCHEMA = 1
Status = Literal["pending", "running", "interrupted", "done", "diverged", "failed"]
Ending = Literal["done", "diverged", "failed", "interrupted"]
FINISHED: frozenset[str] = frozenset({"done", "diverged"})
_TAIL_BYTES = 16384
_MOST_BYTES = 256 * 2**20


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write aside; on leaving it is synced and renamed to `path`.

    On any error `path` is left as it was. A crash leaves at most the file aside, which the next
    write overwrites.
    """
    aside = path.with_name(f".{path.name}.aside")
    aside.unlink(missing_ok=True)  # in someone else's folder it could be a link to anywhere
    try:
        yield aside
        with open(aside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """A rename is on disk only when its directory is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: object) -> None:
    """Replaces `path` atomically. A number that is not finite is refused."""
    text = _dumps(path, value, indent=1)
    with replacing(path) as aside:
        aside.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The object in `path`; a missing or damaged file is a `DepthbenchError` that names it."""
    try:
        with opened(path) as file:
            return _loads(file.read())
    except (OSError, ValueError) as error:
        raise DepthbenchError(f"{path} cannot be read: {error}") from error


def opened(path: Path) -> BinaryIO:
    """The file, for reading. A pipe, a device or more than 256 MiB is a `DepthbenchError`.

    Someone else's folder may hold anything under our names, also what never ends.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
        file.close()
        raise DepthbenchError(
            f"{path} is no file of at most {_MOST_BYTES:,} bytes: depthbench did not write it"
        )
    return file


def read_result(path: Path) -> dict[str, Any]:
    """A `result.json`: its status is known and its schema is ours."""
    result = read_json(path)
    if result.get("schema") != SCHEMA:
        raise InputError(
            f"{path} has schema {result.get('schema')!r}, and this version reads {SCHEMA}: "
            "use the depthbench version that wrote it"
        )
    if result.get("status") not in get_args(Ending):
        raise DepthbenchError(f"{path} has the unknown status {result.get('status')!r}")
    return result


class Metrics:
    """Appends records to a `metrics.jsonl`, each on disk when `append` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists():
            _, whole = _records(path)
            os.truncate(path, whole)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def append(self, record: Mapping[str, object]) -> None:
        """Writes one line. A non-finite number is refused; a full disk leaves no half line."""
        line = _dumps(self.path, record).encode() + b"\n"
        end = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError:
            os.ftruncate(self._file, end)
            raise
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All records in order; none if there is no file. A torn last line is not a record."""
    return _records(path)[0] if path.exists() else []


def truncate_metrics(path: Path, step: int) -> None:
    """Drops every record after `step`, atomically. Call it before `Metrics` opens the file."""
    if path.exists():
        kept = [record for record in read_metrics(path) if record["step"] <= step]
        with replacing(path) as aside:
            aside.write_text("".join(_dumps(path, record) + "\n" for record in kept))


def last_training_record(path: Path) -> dict[str, Any] | None:
    """The newest record with a training loss, found by reading the end of the file only."""
    try:
        with opened(path) as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")
    except (OSError, DepthbenchError):
        return None
    for line in reversed(lines[1:] if start else lines):
        with suppress(ValueError):
            record = _record(line)
            if "loss" in record:
                return record
    return None


@dataclass(frozen=True)
class CellFolder:
    """One cell on disk."""

    path: Path

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints_path(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model_path(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def log_path(self) -> Path:
        return self.path / "log.txt"

    @property
    def result_path(self) -> Path:
        return self.path / "result.json"

    @property
    def probes_path(self) -> Path:
        return self.path / "probes"

    @property
    def layers_path(self) -> Path:
        return self.path / "layers.jsonl"

    @property
    def domains_path(self) -> Path:
        return self.path / "domains.json"

    @property
    def lock_path(self) -> Path:
        return self.path / "lock"

    def config(self) -> CellConfig:
        document = read_json(self.config_path)
        try:
            return CellConfig.model_validate(document)
        except ValidationError as error:
            raise DepthbenchError(f"{self.config_path} is not a cell: {error}") from error

    def result(self) -> dict[str, Any] | None:
        return read_result(self.result_path) if self.result_path.exists() else None

    def check(self, config: CellConfig) -> None:
        """An `InputError` if the folder already belongs to a different experiment."""
        if self.config_path.exists() and self.config().digest() != config.digest():
            raise InputError(
                f"{self.config_path} holds a different experiment than the cell of that name: "
                "move the folder away or choose another output folder"
            )

    def create(self, config: CellConfig) -> None:
        """Makes the folder with its `config.json`; one that is there already must agree.

        What is to be measured may change until the cell is finished.
        """
        self.check(config)
        if not self.config_path.exists() or self._measures_otherwise(config):
            self.path.mkdir(parents=True, exist_ok=True)
            with self.lock():
                write_json(self.config_path, config.model_dump(mode="json"))

    def _measures_otherwise(self, config: CellConfig) -> bool:
        if self.config() == config:
            return False
        try:
            return not self.finished
        except DepthbenchError:  # a damaged result: the cell is run again
            return True

    @property
    def finished(self) -> bool:
        """Nothing is left to run."""
        result = self.result()
        return result is not None and result["status"] in FINISHED

    def status(self) -> Status:
        """Decided by the result if it is final, else by the lock, else by what is there."""
        result = self.result()
        ending: Ending | None = result["status"] if result else None
        if ending not in FINISHED and self.running():
            return "running"
        if ending:
            return ending
        begun = self.metrics_path.exists() or self.checkpoints_path.exists()
        return "interrupted" if begun else "pending"

    def running(self) -> bool:
        """Whether a process holds the lock."""
        try:
            with opened(self.lock_path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    @contextmanager
    def lock(self, wait: float = 10.0) -> Iterator[None]:
        """Held by whoever writes the folder; released when the process dies, however it dies.

        `wait` seconds pass before giving up: an orphan may still be saving its checkpoint.
        """
        deadline = time.monotonic() + wait
        with open(self.lock_path, "ab", opener=_not_through_a_link) as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise DepthbenchError(
                            f"{self.path} is being run by another process: wait for it or stop it"
                        ) from None
                    time.sleep(0.05)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)


def find_cells(root: Path) -> Iterator[CellFolder]:
    """Every folder at or below `root` with a `config.json`, in order of path."""
    for directory, subdirectories, files in os.walk(root):
        subdirectories.sort()
        if "config.json" in files:
            subdirectories.clear()
            yield CellFolder(Path(directory))


def _records(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The records and the number of bytes they take, without a torn last line."""
    records: list[dict[str, Any]] = []
    size = 0
    with opened(path) as file:
        *lines, _torn = file.read().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            records.append(_record(line))
        except ValueError as error:
            if number == len(lines):  # a power cut can also leave a last line of zeros
                break
            raise DepthbenchError(
                f"{path}, line {number} is damaged: {error}. Delete the folder to run the cell anew"
            ) from error
        size += len(line) + 1
    return records, size


def _record(line: bytes) -> dict[str, Any]:
    record = _loads(line)
    if not isinstance(record.get("step"), int):
        raise ValueError("a record has no step")
    return record


def _not_through_a_link(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o666)


def _loads(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _dumps(path: Path, value: object, indent: int | None = None) -> str:
    try:
        return json.dumps(value, allow_nan=False, indent=indent)
    except ValueError as error:
        raise DepthbenchError(f"{path}: refused to write {value!r}: {error}") from error
