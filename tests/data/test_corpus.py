import hashlib
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from depthbench.data import Corpus, LocalOptions, open_corpus, prepare
from depthbench.errors import DataError


def documents(corpus: Corpus, stream: NDArray[Any]) -> list[str]:
    ends = np.flatnonzero(stream == corpus.end_of_text)
    parts = np.split(np.asarray(stream), ends + 1)[:-1]
    return [
        corpus.tokenizer().decode(part[:-1].tolist(), skip_special_tokens=False) for part in parts
    ]


def test_the_streams_hold_every_document_once(corpus: Corpus, texts: list[str]) -> None:
    train, validation = (
        documents(corpus, corpus.train),
        documents(corpus, corpus.validation["tiny"]),
    )
    assert validation[0] == ""  # one end-of-text leads, so that the first token is predicted
    assert sorted(train + validation[1:]) == sorted(texts)
    assert 20 <= len(validation) - 1 <= 60  # a tenth of 400, within three deviations
    assert train != [text for text in texts if text in train]  # shuffled
    assert corpus.train.dtype == np.uint16
    assert corpus.train[-1] == corpus.validation["tiny"][-1] == corpus.end_of_text


def test_counts_bytes_and_entropy(corpus: Corpus) -> None:
    for name, stream in (("train", corpus.train), ("validation/tiny", corpus.validation["tiny"])):
        found = [text for text in documents(corpus, stream) if text]
        record = corpus.header.arrays[name]
        assert record.count == len(stream)
        assert record.documents == len(found)
        assert record.text_bytes == sum(len(text.encode()) for text in found)
        assert corpus.token_bytes[stream].sum() == record.text_bytes
    counts = Counter(corpus.validation["tiny"][1:].tolist())
    n = counts.total()
    entropy = -sum(c / n * math.log(c / n) for c in counts.values())
    assert corpus.unigram_entropy == pytest.approx(entropy, rel=1e-12)


def test_hashes(corpus: Corpus) -> None:
    def sha256(name: str) -> str:
        return hashlib.sha256((corpus.path / name).read_bytes()).hexdigest()

    assert corpus.tokenizer_hash == sha256("tokenizer.json")
    assert {a.sha256 for a in corpus.header.arrays.values()} == {
        sha256(path.name) for path in corpus.path.glob("*.bin")
    }
    ref = corpus.ref()
    assert (ref.name, ref.hash, ref.vocab_size) == ("tiny", corpus.hash, len(corpus.token_bytes))
    assert len(ref.hash) == 64


def test_the_same_text_gives_the_same_corpus(
    corpus: Corpus, jsonl: Path, tmp_path: Path, options: LocalOptions
) -> None:
    again = open_corpus(prepare(jsonl, tmp_path / "elsewhere", local=options))
    assert again.hash == corpus.hash
    jsonl.write_text(jsonl.read_text().replace("Document 7.", "Document seven."))
    assert open_corpus(prepare(jsonl, tmp_path / "cache", local=options)).hash != corpus.hash


def test_nothing_is_written_when_the_corpus_stands(
    corpus: Corpus, jsonl: Path, cache: Path, options: LocalOptions
) -> None:
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert prepare(jsonl, cache, offline=True, local=options) == corpus.path
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


@pytest.mark.parametrize("file", ["train.bin", "validation-tiny.bin", "tokenizer.json"])
def test_a_damaged_file_is_named_and_only_it_is_redone(
    corpus: Corpus, jsonl: Path, cache: Path, options: LocalOptions, file: str
) -> None:
    path, wanted = corpus.path / file, (corpus.path / file).read_bytes()
    others = {p: p.stat().st_ino for p in corpus.path.glob("*.bin") if p != path}
    path.write_bytes(wanted[:50] + bytes([wanted[50] ^ 1]) + wanted[51:])
    with pytest.raises(DataError, match=rf"{file} .*data prepare {jsonl}"):
        open_corpus(corpus.path)
    assert open_corpus(prepare(jsonl, cache, local=options)).hash == corpus.hash
    assert path.read_bytes() == wanted
    assert {p: p.stat().st_ino for p in others} == others


def test_a_wrong_size_is_seen_without_hashing(corpus: Corpus) -> None:
    path = corpus.path / "train.bin"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DataError, match=rf"train\.bin has {size - 2} bytes instead of {size}"):
        open_corpus(corpus.path, verify=False)
    path.unlink()
    with pytest.raises(DataError, match=r"train\.bin is missing"):
        open_corpus(corpus.path, verify=False)


def test_a_damaged_header_is_named(corpus: Corpus, tmp_path: Path) -> None:
    header = corpus.path / "header.json"
    content = json.loads(header.read_text())
    content["arrays"]["train"]["count"] += 1
    header.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"header\.json is damaged"):
        open_corpus(corpus.path)
    header.write_text("{")
    with pytest.raises(DataError, match=r"header\.json is damaged"):
        open_corpus(corpus.path)
    header.write_text(json.dumps({**content, "format": 0}))
    with pytest.raises(DataError, match="format 0"):
        open_corpus(corpus.path)
    with pytest.raises(DataError, match="is not a prepared corpus"):
        open_corpus(tmp_path / "nowhere")


def test_an_interrupted_preparation_goes_on(
    jsonl: Path, tmp_path: Path, options: LocalOptions
) -> None:
    whole = open_corpus(prepare(jsonl, tmp_path / "whole", local=options))
    tokens_done: list[int] = []

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "tokens":
            tokens_done.append(done)
            if done == total:  # within the last array, before it is in place
                raise KeyboardInterrupt

    cache = tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        prepare(jsonl, cache, on_progress=interrupt, local=options)
    (folder,) = (cache / "corpora").glob("tiny-*")
    with pytest.raises(DataError, match="is not a prepared corpus"):
        open_corpus(folder)
    standing = {path: path.stat().st_ino for path in folder.glob("*.bin")}
    assert folder / "train.bin" in standing
    assert len(standing) == 2  # with token_bytes; validation is not there
    assert not list(folder.glob(".*"))
    stages: list[str] = []
    prepare(jsonl, cache, on_progress=lambda stage, *_: stages.append(stage), local=options)
    assert {path: path.stat().st_ino for path in standing} == standing
    assert open_corpus(folder).hash == whole.hash
    assert {p.name for p in folder.iterdir()} == {p.name for p in whole.path.iterdir()}
    assert stages[-1] == "tokens"
