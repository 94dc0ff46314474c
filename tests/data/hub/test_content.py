"""What a corpus of the hub consists of, told by its decoded streams and the texts alone."""

import re
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

from depthbench.config import CellConfig
from depthbench.data import Corpus, open_corpus, prepare
from depthbench.data.hub import shards
from depthbench.folder import CellFolder
from depthbench.train.trainer import train
from tests.data.hub.kit import PER_SHARD, VOCAB, Hub, texts_of
from tests.kit import cell_document

SHARED = "The same words stand in every shard."


def documents(corpus: Corpus, stream: NDArray[Any]) -> list[str]:
    ends = np.flatnonzero(stream == corpus.end_of_text)
    parts = np.split(np.asarray(stream), ends + 1)[:-1]
    return [
        corpus.tokenizer().decode(part[:-1].tolist(), skip_special_tokens=False) for part in parts
    ]


def origin(text: str) -> tuple[int, int]:
    found = re.match(r"shard(\d+)row(\d+)x", text)
    assert found is not None, text
    return int(found[1]), int(found[2])


def rows_of(shard: int) -> list[int]:
    """Rows that have a text, and one that no other shard has."""
    return [row for row, text in enumerate(texts_of(shard)) if text and text != SHARED]


def by_shard(texts: list[str]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for text in texts:
        shard, row = origin(text)
        found[shard].append(row)
    return found


def test_a_whole_shard_is_held_out_and_its_texts_are_nowhere_else(whole: Corpus) -> None:
    lead, *held_out = documents(whole, whole.validation["fineweb-edu"])
    assert lead == ""  # so that the first token is predicted
    assert SHARED in held_out
    (shard,) = by_shard([text for text in held_out if text != SHARED])
    trained = documents(whole, whole.train)
    assert shard not in by_shard(trained)  # where the shared text has no place either


def test_every_text_stands_once_as_it_is_on_the_hub(whole: Corpus) -> None:
    trained = documents(whole, whole.train)
    assert len(set(trained)) == len(trained)
    for text in trained:
        shard, row = origin(text)
        assert text == unicodedata.normalize("NFC", texts_of(shard)[row] or "")
    taken = by_shard(trained)
    cut = [shard for shard in taken if len(taken[shard]) < len(rows_of(shard))]
    assert len(taken) == 3
    assert len(cut) == 1
    for shard, rows in taken.items():
        assert sorted(rows) == rows_of(shard)[: len(rows)]  # the last one from its beginning


def test_the_first_document_that_reaches_the_tokens_is_the_last(whole: Corpus, hub: Hub) -> None:
    encoder = Tokenizer.from_file(str(hub.tokenizer))
    encoder.encode_special_tokens = True
    trained = documents(whole, whole.train)
    sizes = [len(encoder.encode(text).ids) + 1 for text in trained]
    assert len(whole.train) == sum(sizes)
    taken = by_shard(trained)
    (cut,) = (shard for shard in taken if len(taken[shard]) < len(rows_of(shard)))
    last = sizes[[origin(text) for text in trained].index((cut, max(taken[cut])))]
    assert len(whole.train) - last < 6000 <= len(whole.train)
    validation = documents(whole, whole.validation["fineweb-edu"])[1:]
    of_validation = [len(encoder.encode(text).ids) + 1 for text in validation]
    assert len(whole.validation["fineweb-edu"]) == 1 + sum(of_validation)
    assert 1000 <= sum(of_validation) < 1000 + max(of_validation)


def test_documents_are_shuffled_across_shards(whole: Corpus) -> None:
    order = [origin(text) for text in documents(whole, whole.train)]
    places = defaultdict(list)
    for place, (shard, _) in enumerate(order):
        places[shard].append(place / len(order))
    # three shards, each spread over the whole: the middle of 18 uniform places has a deviation of
    # 0.07, and 3 are allowed
    assert all(abs(np.mean(found) - 0.5) < 0.2 for found in places.values())
    for shard in places:
        rows = [row for of, row in order if of == shard]
        assert abs(np.corrcoef(rows, range(len(rows)))[0, 1]) < 0.5


def test_bytes_of_tokens_and_a_padded_vocabulary(whole: Corpus, hub: Hub) -> None:
    types = Tokenizer.from_file(str(hub.tokenizer)).get_vocab_size()
    assert whole.vocab_size == len(whole.token_bytes) == VOCAB > types
    assert not whole.token_bytes[types:].any()
    assert whole.token_bytes[Tokenizer.from_file(str(hub.tokenizer)).token_to_id("    ")] == 4
    for name, stream in (
        ("train", whole.train),
        ("validation/fineweb-edu", whole.validation["fineweb-edu"]),
    ):
        record = whole.header.arrays[name]
        found = [text for text in documents(whole, stream) if text]
        assert record.documents == len(found)
        assert record.text_bytes == sum(len(text.encode()) for text in found)
        assert whole.token_bytes[stream].sum() == record.text_bytes
    counts = Counter(whole.validation["fineweb-edu"][1:].tolist())
    p = np.array(list(counts.values())) / counts.total()
    assert whole.unigram_entropy == pytest.approx(-(p * np.log(p)).sum(), rel=1e-12)


def test_the_header_names_where_it_came_from(whole: Corpus, hub: Hub) -> None:
    import hashlib

    sources = dict(whole.header.sources)
    assert sources.pop("HuggingFaceFW/fineweb-edu") == "a local copy"
    assert sources.pop("unit/small") == "main"
    assert len(sources) == 4  # three for training, one for validation
    for name, digest in sources.items():
        assert hashlib.sha256((hub.source / name).read_bytes()).hexdigest() == digest
    assert whole.header.licences == {"fineweb-edu": "ODC-By 1.0"}


def test_batches_and_runs_change_nothing(
    whole: Corpus, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "BATCH", 7)
    monkeypatch.setattr(shards, "_RUN_TOKENS", 500)
    assert hub.prepare(tmp_path).hash == whole.hash


def test_no_more_is_tokenised_than_is_needed(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "BATCH", 2)
    tokenised: dict[str, int] = {}

    def look(stage: str, done: int, total: int) -> None:
        for path in tmp_path.glob("shards/*/*.bin"):
            tokenised[path.name] = path.stat().st_size // 2

    folder = prepare(
        "fineweb-edu", tmp_path, on_progress=look, hub=hub.options(), access=hub.access()
    )
    sources = open_corpus(folder).header.sources
    assert len(tokenised) == len([name for name in sources if name.endswith(".parquet")]) == 4
    batch = 2 * 100  # no document has as many as 100 tokens
    assert 7000 <= sum(tokenised.values()) < 7000 + 2 * batch


def test_fewer_tokens_are_the_same_shards(whole: Corpus, hub: Hub, tmp_path: Path) -> None:
    small = hub.prepare(tmp_path, tokens=3000)
    assert small.path.name != whole.path.name
    assert np.array_equal(small.validation["fineweb-edu"], whole.validation["fineweb-edu"])
    taken = by_shard(documents(small, small.train))
    all_taken = by_shard(documents(whole, whole.train))
    for shard, rows in taken.items():
        assert set(rows) <= set(all_taken[shard])


def test_several_shards_are_held_out_on_request(hub: Hub, tmp_path: Path) -> None:
    corpus = hub.prepare(tmp_path, tokens=3000, validation_shards=2)
    held_out = [t for t in documents(corpus, corpus.validation["fineweb-edu"])[1:] if t != SHARED]
    assert len(by_shard(held_out)) == 2
    assert not by_shard(held_out).keys() & by_shard(documents(corpus, corpus.train)).keys()


def test_the_corpus_trains_a_cell(whole: Corpus, tmp_path: Path) -> None:
    config = CellConfig.model_validate(cell_document(whole, steps=3))
    folder = CellFolder(tmp_path / "cell")
    folder.create(config)
    outcome = train(config, folder, whole, lambda: False)
    assert outcome.status == "done"
    assert outcome.measures is not None
    assert 0 < outcome.measures["loss"] < 2 * np.log(VOCAB)
    assert outcome.measures["loss_by_source"].keys() == {"fineweb-edu"}


def test_transformers_makes_the_same_tokens(whole: Corpus, hub: Hub, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    (tmp_path / "tokenizer.json").write_bytes(hub.tokenizer.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPTNeoXTokenizer"}')
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    marked = [n for n in range(PER_SHARD) if n % 9 == 4]  # transformers reads the mark as one token
    texts = [text for n, text in enumerate(texts_of(1)) if text and n not in marked]
    ours = [encoding.ids for encoding in whole.tokenizer().encode_batch_fast(texts)]
    assert theirs(texts)["input_ids"] == ours
