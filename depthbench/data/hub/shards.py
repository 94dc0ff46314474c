"""One shard of a repository becomes one file of tokens, with an index of its documents."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from depthbench.config import Frozen
from depthbench.data import encode, files, tokenizer
from depthbench.data.documents import draw
from depthbench.data.hub.repository import Shard, at_hand
from depthbench.errors import DataError, DepthbenchError

INDEX = np.dtype(
    [("row", "<u4"), ("tokens", "<u4"), ("bytes", "<u4"), ("place", "<f8"), ("text", "<u8")]
)
"""A document in the order of the file: its row in the shard, tokens with the end mark, bytes of
text, place in the shuffled corpus, and the first bytes of its text's hash."""
Batch = tuple[NDArray[Any], NDArray[np.uint32]]
"""`INDEX` records [documents] and the tokens of these documents, one after the other."""
BATCH, DOWNLOADS, SCRATCH = 256, "downloads", "reading"
_RUN_TOKENS = 2**25
_PARALLEL = "TOKENIZERS_PARALLELISM"


class Record(Frozen):
    """What stands of a shard: written last. `source_sha256` is of the parquet file."""

    name: str
    source_sha256: str
    basis: str
    complete: bool
    count: int
    sha256: str
    index_sha256: str


@dataclass(frozen=True)
class Job:
    """A shard to be tokenised into `folder`, up to the batch that reaches `limit` tokens.

    Documents whose text is in one of the index files `without` are left out.
    """

    shard: Shard
    limit: int
    folder: Path
    column: str
    tokenizer: Path
    without: tuple[Path, ...] = ()

    def file(self, suffix: str) -> Path:
        """`bin` for tokens, `index` for documents, `json` for the record."""
        return self.folder / f"{self.shard.name.replace('/', '--')}.{suffix}"

    def basis(self) -> str:
        """Hash of what the tokens come from besides the shard: tokenizer and texts left out."""
        hashes = map(files.sha256, (self.tokenizer, *self.without))
        return hashlib.sha256("".join(hashes).encode()).hexdigest()

    def record(self) -> Record:
        """What its last run wrote. Raises `OSError` or `ValueError` if there is none."""
        return Record.model_validate_json(self.file("json").read_bytes())

    def standing(self) -> Record | None:
        """The record of an earlier run, if it covers this job and the files are as it left them."""
        try:
            record = self.record()
            source = self.shard.sha256 or files.sha256(Path(self.shard.location))
            whole = (
                record.source_sha256 == source
                and record.basis == self.basis()
                and (record.complete or record.count >= self.limit)
                and files.sha256(self.file("bin")) == record.sha256
                and files.sha256(self.file("index")) == record.index_sha256
            )
        except (OSError, ValueError):
            return None
        return record if whole else None


def write_shard(job: Job, progress: Callable[[int], None]) -> None:
    """Do the job; its record is there when it is done. `progress` is told tokens in this shard.

    Raises `DataError` for whatever stops it, since it may have to be told to another process.
    """
    try:
        _write(job, progress)
    except DepthbenchError:
        raise
    except Exception as error:  # of the parquet, disk and tokenizer layers below
        raise DataError(
            f"{job.shard.name} cannot be tokenised: {type(error).__name__}: {error}. Run the same "
            "command again once that is mended: shards that are finished are not done again"
        ) from error


def _write(job: Job, progress: Callable[[int], None]) -> None:
    digest, count, indexes = hashlib.sha256(), 0, []
    with at_hand(job.shard, job.folder / DOWNLOADS) as (path, source_sha256), one_thread():
        encoder = tokenizer.load(job.tokenizer)
        batches = _until(job.limit, encoded(path, job, encoder))
        with files.replacing(job.file("bin")) as out:
            for index, ids in _runs(batches, progress):
                content = ids.astype(encode.token_dtype(encoder)).tobytes()
                out.write(content)
                digest.update(content)
                indexes.append(index.tobytes())
                count += len(ids)
        files.write(job.file("index"), b"".join(indexes))
    record = Record(
        name=job.shard.name,
        source_sha256=source_sha256,
        basis=job.basis(),
        complete=count < job.limit,
        count=count,
        sha256=digest.hexdigest(),
        index_sha256=hashlib.sha256(b"".join(indexes)).hexdigest(),
    )
    files.write(job.file("json"), record.model_dump_json(indent=1).encode())


def read_batches(location: str, column: str, scratch: Path) -> Iterator[list[str | None]]:
    """The texts of a parquet file, in its order; `scratch` is where `datasets` has its locks."""
    import datasets

    rows = datasets.load_dataset(
        "parquet",
        data_files=[location],
        split="train",
        streaming=True,
        columns=[column],
        cache_dir=str(scratch),
    )
    yield from (batch[column] for batch in rows.iter(BATCH))


def encoded(path: Path, job: Job, encoder: Tokenizer) -> Iterator[Batch]:
    """Index and tokens of the file's documents, batch by batch, without the empty ones."""
    end, sizes = tokenizer.end_of_text(encoder), tokenizer.token_bytes(encoder)
    left_out = {int(text) for file in job.without for text in np.fromfile(file, INDEX)["text"]}
    first = 0
    for batch in read_batches(str(path), job.column, job.folder / SCRATCH):
        rows = [
            (first + n, text, identity)
            for n, text in enumerate(batch)
            if text and (identity := text_identity(text)) not in left_out
        ]
        first += len(batch)
        if not rows:
            continue
        found = encoder.encode_batch_fast([text for _, text, _ in rows], add_special_tokens=False)
        documents = [[*encoding.ids, end] for encoding in found]
        ids = np.fromiter(chain.from_iterable(documents), dtype=np.uint32)
        index = np.zeros(len(rows), INDEX)
        index["row"] = [row for row, _, _ in rows]
        index["tokens"] = [len(document) for document in documents]
        index["bytes"] = np.add.reduceat(sizes[ids], offsets(index)[:-1])
        index["place"] = [draw("order", job.shard.name, str(row)) for row, _, _ in rows]
        index["text"] = [identity for _, _, identity in rows]
        yield index, ids


def text_identity(text: str) -> int:
    """Equal for equal texts; for others, with 64 bits, practically never."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def offsets(index: NDArray[Any]) -> NDArray[np.int64]:
    """Where each document begins in the file of tokens, and last where the file ends."""
    return np.concatenate([[0], np.cumsum(index["tokens"], dtype=np.int64)])


def _until(limit: int, batches: Iterator[Batch]) -> Iterator[Batch]:
    count = 0
    for index, ids in batches:
        yield index, ids
        count += len(ids)
        if count >= limit:
            return


def _runs(batches: Iterator[Batch], progress: Callable[[int], None]) -> Iterator[Batch]:
    """Batches put together into runs, each in order of place.

    A corpus is read off all its runs side by side, so a run has to be sorted for speed alone, and
    no longer than memory holds.
    """
    run: list[Batch] = []
    done = held = 0
    for batch in batches:
        run.append(batch)
        held += len(batch[1])
        progress(done + held)
        if held >= _RUN_TOKENS:
            yield _sorted(run)
            run, done, held = [], done + held, 0
    if run:
        yield _sorted(run)


def _sorted(run: list[Batch]) -> Batch:
    index = np.concatenate([index for index, _ in run])
    ids = np.concatenate([ids for _, ids in run])
    starts, order = offsets(index), np.argsort(index["place"], kind="stable")
    return index[order], np.concatenate([ids[starts[n] : starts[n + 1]] for n in order])


@contextmanager
def one_thread() -> Iterator[None]:
    """Tokenise on one thread, so that as many processes as there are cores do not crowd them."""
    before = os.environ.get(_PARALLEL)
    os.environ[_PARALLEL] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PARALLEL]
        else:
            os.environ[_PARALLEL] = before
