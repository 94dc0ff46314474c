"""The corpus that a config names by hash: found wherever it lies, or refused with the reason."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from depthbench.data import Corpus, LocalOptions, open_corpus, prepare
from depthbench.data.pinned import open_pinned
from depthbench.errors import DataError


@pytest.fixture
def second(tmp_path: Path, cache: Path, texts: list[str], options: LocalOptions) -> Corpus:
    """Other text under the same name, prepared into the same cache."""
    path = tmp_path / "other" / "tiny.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps({"text": text[::-1]}) + "\n" for text in texts))
    return open_corpus(prepare(path, cache, local=options))


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_the_pinned_corpus_is_opened(corpus, cache) -> None:
    found = open_pinned(corpus.ref(), cache)
    assert found.path == corpus.path
    assert np.array_equal(found.train, corpus.train)


def test_the_default_cache_is_searched(corpus, cache, monkeypatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(cache))
    assert open_pinned(corpus.ref()).hash == corpus.hash


def test_of_two_of_one_name_the_hash_decides(corpus, second, cache) -> None:
    assert corpus.name == second.name
    assert corpus.hash != second.hash
    for wanted in (corpus, second):
        assert open_pinned(wanted.ref(), cache).hash == wanted.hash


def test_the_name_of_the_folder_does_not_matter(corpus, cache) -> None:
    corpus.path.rename(cache / "corpora" / "moved by hand")
    assert open_pinned(corpus.ref(), cache).path.name == "moved by hand"


def test_without_any_corpus_the_message_says_what_to_run(corpus, tmp_path) -> None:
    with pytest.raises(DataError, match=r"nothing is prepared.*depthbench data prepare tiny") as e:
        open_pinned(corpus.ref(), tmp_path / "empty")
    assert corpus.hash in str(e.value)
    assert str(tmp_path / "empty") in str(e.value)


@pytest.mark.parametrize("field", ["hash", "tokenizer_hash"])
def test_other_contents_under_the_name_are_refused(field, corpus, cache) -> None:
    with pytest.raises(DataError) as error:
        open_pinned(corpus.ref().model_copy(update={field: "0" * 64}), cache)
    assert f"{corpus.path} has the hash {corpus.hash}" in str(error.value)


def test_another_vocabulary_is_refused(corpus, cache) -> None:
    with pytest.raises(DataError):
        open_pinned(corpus.ref().model_copy(update={"vocab_size": 321}), cache)


@pytest.mark.parametrize("damage", ["garbage", "old format", "no arrays", "other json"])
def test_a_damaged_neighbour_stops_nobody(damage, corpus, cache) -> None:
    for name in ("aaa", "zzz"):  # before and after it in order
        neighbour = cache / "corpora" / name
        shutil.copytree(corpus.path, neighbour)
        header = neighbour / "header.json"
        if damage == "garbage":
            header.write_bytes(b"\xff\x00 not json")
        elif damage == "old format":
            header.write_text(json.dumps({"format": 0, "name": "tiny"}))
        elif damage == "no arrays":
            (neighbour / "train.bin").unlink()
        else:
            header.write_text("[]")
    assert open_pinned(corpus.ref(), cache).path == corpus.path


def test_a_damaged_copy_before_a_sound_one_stops_nobody(corpus, cache) -> None:
    """Same header, same sizes, one bit that only the hash can tell."""
    shutil.copytree(corpus.path, cache / "corpora" / "aaa")
    flip_last_byte(cache / "corpora" / "aaa" / "train.bin")
    assert open_pinned(corpus.ref(), cache).path == corpus.path


def test_the_pinned_corpus_is_verified_by_hash(corpus, cache) -> None:
    flip_last_byte(corpus.path / "train.bin")
    with pytest.raises(DataError, match=r"train\.bin does not have the sha256"):
        open_pinned(corpus.ref(), cache)


def test_a_pinned_corpus_cut_short_is_named(corpus, cache) -> None:
    file = corpus.path / "train.bin"
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"train\.bin has \d+ bytes instead of \d+"):
        open_pinned(corpus.ref(), cache)
