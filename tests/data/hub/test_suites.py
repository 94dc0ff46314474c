"""What a suite's plan knows of a hub corpus, and what it may ask of it."""

from pathlib import Path

import pytest

from depthbench import corpora
from depthbench.config import CorpusRef
from depthbench.data import Corpus, HubOptions, LocalOptions
from depthbench.errors import DataError, InputError
from tests.data.hub.kit import VOCAB, Hub


@pytest.fixture
def cache(whole: Corpus, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one in which the corpus is prepared, as everybody's default."""
    found = whole.path.parents[1]
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(found))
    return found


def test_a_plan_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path))
    options = HubOptions()
    assert corpora.prepared_ref("fineweb-edu", LocalOptions(), options) is None
    declared = corpora.declared_ref("fineweb-edu", LocalOptions(), options)
    assert (declared.name, declared.hash, declared.vocab_size) == (
        *("fineweb-edu", corpora.UNPREPARED),
        50280,
    )
    assert corpora.declared_ref("fineweb-edu", LocalOptions()) == declared
    assert list(tmp_path.iterdir()) == []


def test_a_prepared_corpus_is_found_by_what_is_taken(whole: Corpus, hub: Hub, cache: Path) -> None:
    assert corpora.prepared_ref("fineweb-edu", LocalOptions(), hub.options()) == whole.ref()
    assert corpora.prepared_ref("fineweb-edu", LocalOptions(), hub.options(6001)) is None
    declared = corpora.declared_ref("fineweb-edu", LocalOptions(), hub.options())
    assert declared.vocab_size == whole.ref().vocab_size == VOCAB


def test_prepare_ref_takes_what_is_there(whole: Corpus, hub: Hub, cache: Path) -> None:
    """Without a copy at hand it would need the network, which these tests refuse."""
    found = corpora.prepare_ref("fineweb-edu", LocalOptions(), lambda *_: None, hub.options())
    assert found == whole.ref()


def test_a_pinned_hub_corpus_is_opened_but_never_fetched(whole: Corpus, cache: Path) -> None:
    def refuse() -> None:
        raise AssertionError("it began to prepare")

    corpora.prepare_pinned(whole.ref(), refuse)  # it is there
    other = CorpusRef(**{**whole.ref().model_dump(), "hash": "0" * 64})
    with pytest.raises(DataError, match="data prepare fineweb-edu"):
        corpora.prepare_pinned(other, refuse)


def test_a_suite_that_needs_more_tokens_is_refused() -> None:
    options = HubOptions(tokens=1000)
    corpora.check_enough("fineweb-edu", options, 1000)
    with pytest.raises(InputError, match=r"trains on 1,001 tokens.*hub\.tokens = 1001"):
        corpora.check_enough("fineweb-edu", options, 1001)
    with pytest.raises(InputError, match="hf:a/b"):
        corpora.check_enough("hf:a/b", options, 1001)
    corpora.check_enough("pypi-text", options, 10**9)  # goes on in further epochs
