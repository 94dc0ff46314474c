"""What a corpus will take, measured on a sample before anything is fetched."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from depthbench.data import tokenizer
from depthbench.data.hub.options import HubCorpus
from depthbench.data.hub.repository import Shard, opened
from depthbench.data.hub.shards import BATCH, INDEX, one_thread, read_batches
from depthbench.errors import InputError

SAMPLE_BYTES = 2_000_000


@dataclass(frozen=True)
class Sample:
    """What the first documents of a shard tell of it; speed is of one process, bytes are text's."""

    bytes_per_token: float
    bytes_per_second: float
    tokens_per_document: float
    tokens_per_file_byte: float

    def tokens(self, shard: Shard) -> float:
        """About how many tokens another shard of the repository has."""
        return shard.size * self.tokens_per_file_byte


@dataclass(frozen=True)
class Estimate:
    """Bytes and seconds that lie ahead; `download_bytes` are of the shards that are needed."""

    shards: int
    available_tokens: float
    text_bytes: float
    download_bytes: int
    disk_bytes: int
    seconds: float
    sample: Sample
    processes: int


def sample(corpus: HubCorpus, shard: Shard, encoder: Tokenizer, scratch: Path) -> Sample:
    """Reads the first documents of `shard`, on the hub only as much of it, and tokenises them.

    Raises `InputError` for a column that is not there or holds no text, and for a tokenizer whose
    tokens are not spelled in bytes.
    """
    rows = _rows(shard, corpus.options.text)
    texts: list[str] = []
    num_bytes = rows_read = 0
    for batch in read_batches(shard.location, corpus.options.text, scratch):
        rows_read += len(batch)
        texts += [text for text in batch if text]
        num_bytes = sum(len(text.encode()) for text in texts)
        if num_bytes >= SAMPLE_BYTES:
            break
    if not texts:
        raise InputError(f"{shard.location} has no text in its column {corpus.options.text!r}")
    with one_thread():
        encoder.encode_batch_fast(texts[:BATCH], add_special_tokens=False)  # its cache fills
        begun = time.perf_counter()
        encodings = encoder.encode_batch_fast(texts, add_special_tokens=False)
        seconds = time.perf_counter() - begun
    _check_bytes(corpus, encoder, texts, [encoding.ids for encoding in encodings])
    num_tokens = sum(len(encoding.ids) + 1 for encoding in encodings)
    return Sample(
        bytes_per_token=num_bytes / num_tokens,
        bytes_per_second=num_bytes / seconds,
        tokens_per_document=num_tokens / len(texts),
        tokens_per_file_byte=rows / rows_read * num_tokens / shard.size,
    )


def estimate(
    corpus: HubCorpus,
    train: Sequence[Shard],
    validation: Sequence[Shard],
    found: Sample,
    processes: int,
) -> Estimate:
    """What is ahead if nothing stands yet. Every token is on disk twice for a while."""
    options = corpus.options
    needed: list[Shard] = []
    for shard in train:
        if sum(map(found.tokens, needed)) >= options.tokens:
            break
        needed.append(shard)
    needed += validation
    remote = [shard.size for shard in needed if shard.sha256]
    num_tokens = options.tokens + options.validation_tokens
    largest = max(map(found.tokens, needed))
    processes = min(processes, len(needed))
    itemsize = 2 if options.tokenizer.vocab_size <= 65535 else 4
    in_shards = itemsize + INDEX.itemsize / found.tokens_per_document
    return Estimate(
        shards=len(needed),
        available_tokens=sum(map(found.tokens, train)),
        text_bytes=num_tokens * found.bytes_per_token,
        download_bytes=sum(remote),
        disk_bytes=int(
            num_tokens * (in_shards + itemsize)
            + min(largest, options.tokens) * in_shards
            + processes * max(remote, default=0)
        ),
        seconds=num_tokens * found.bytes_per_token / found.bytes_per_second / processes,
        sample=found,
        processes=processes,
    )


def _rows(shard: Shard, column: str) -> int:
    """Rows of the file, by its footer."""
    import pyarrow.parquet as pq

    with opened(shard) as file:
        footer = pq.ParquetFile(file)
        schema, rows = footer.schema_arrow, footer.metadata.num_rows
    if column not in schema.names:
        from residuals.errors import unknown  # imports torch: only once something is wrong

        sentence = unknown("column", column, schema.names)
        raise InputError(f"{shard.location}: {sentence}\nThe option `text` names the column.")
    kind = str(schema.field(column).type)
    if kind not in ("string", "large_string"):
        raise InputError(f"{shard.location}: column {column!r} holds {kind}, and text is needed")
    return int(rows)


def _check_bytes(
    corpus: HubCorpus, encoder: Tokenizer, texts: Sequence[str], ids: Sequence[Sequence[int]]
) -> None:
    """Bits per byte need tokens whose bytes add up to the text's."""
    sizes = tokenizer.token_bytes(encoder)
    normalise = encoder.normalizer.normalize_str if encoder.normalizer else str
    wanted = sum(len(normalise(text).encode()) for text in texts)
    found = sum(int(sizes[list(document)].sum()) for document in ids)
    if found != wanted:
        raise InputError(
            f"the tokens of {corpus.options.tokenizer.repository} spell {found} bytes of a sample "
            f"that has {wanted}: it is no byte-level tokenizer, and bits per byte would be wrong"
        )
