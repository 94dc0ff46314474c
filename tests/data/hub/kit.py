"""A folder laid out like FineWeb-Edu's repository, and a small tokenizer like GPT-NeoX's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from depthbench.data import Corpus, HubOptions, open_corpus, prepare
from depthbench.data.hub.options import HubTokenizer
from depthbench.data.hub.prepare import HubAccess

CARD = """---
license: odc-by
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*/*
- config_name: sample-10BT
  data_files:
  - split: train
    path: sample/10BT/*
---
# FineWeb-Edu
"""
SHARDS = [f"sample/10BT/{n:03d}_00000.parquet" for n in range(5)]
DUMP = "data/CC-MAIN-2024-10/train-00000-of-00014.parquet"
PER_SHARD = 40
VOCAB = 384
WORDS = "the depth of a network's residual stream is 7 times as wide as école naïve 漢字".split()


def document(shard: int, row: int) -> str:
    """Like no other; with runs of blanks, and now and then the mark that ends documents."""
    words = [WORDS[(row * k + shard + k) % len(WORDS)] for k in range(30 + (7 * row) % 41)]
    mark = " <|endoftext|>" if row % 9 == 4 else ""
    return f"shard{shard}row{row}x{mark}\n    " + " ".join(words)


def texts_of(shard: int) -> list[str | None]:
    """Rows of a shard: two of them are empty, and row 6 of all shards is the same text."""
    rows: list[str | None] = [document(shard, row) for row in range(PER_SHARD)]
    rows[3], rows[11], rows[6] = "", None, "The same words stand in every shard."
    return rows


def write_repository(root: Path) -> Path:
    """The card, one shard of a dump and five of the sample, with FineWeb-Edu's columns."""
    for shard, name in enumerate([*SHARDS, DUMP]):
        write_shard(root / name, texts_of(shard))
    (root / "README.md").write_text(CARD)
    return root


def write_shard(path: Path, texts: Sequence[str | None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    n = len(texts)
    columns: dict[str, Any] = {
        "text": pa.array(texts, pa.string()),
        "id": [f"<urn:uuid:{path.stem}-{row}>" for row in range(n)],
        "dump": ["CC-MAIN-2024-10"] * n,
        "url": ["https://example.org/"] * n,
        "file_path": ["s3://commoncrawl/a.warc.gz"] * n,
        "language": ["en"] * n,
        "language_score": [0.9] * n,
        "token_count": [100] * n,
        "score": [3.1] * n,
        "int_score": [3] * n,
    }
    pq.write_table(pa.table(columns), path, row_group_size=16)


def write_tokenizer(path: Path) -> Path:
    """Byte-level BPE on NFC text, special marks first and runs of blanks last, as GPT-NeoX has."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(
        vocab_size=360,
        special_tokens=["<|endoftext|>", "<|padding|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([document(0, row) for row in range(PER_SHARD)], trainer)
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(8, 1, -1)])
    tokenizer.save(str(path))
    return path


@dataclass(frozen=True)
class Hub:
    """A local copy, and how it is prepared from here."""

    source: Path
    tokenizer: Path

    def options(self, tokens: int = 6000, **changes: Any) -> HubOptions:
        encoder = HubTokenizer(repository="unit/small", vocab_size=VOCAB)
        given = {"tokens": tokens, "validation_tokens": 1000, "tokenizer": encoder}
        return HubOptions.model_validate(given | changes)

    def access(self, processes: int = 1, **changes: Any) -> HubAccess:
        return HubAccess(
            source=self.source, tokenizer=self.tokenizer, processes=processes, **changes
        )

    def prepare(
        self, cache: Path, processes: int = 1, tokens: int = 6000, **options: Any
    ) -> Corpus:
        folder = prepare(
            "fineweb-edu",
            cache,
            hub=self.options(tokens, **options),
            access=self.access(processes),
        )
        return open_corpus(folder)


def running(pid: int) -> bool:
    """Whether there is a process of that number, and not only its remains."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
