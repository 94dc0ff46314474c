import hashlib
from importlib.resources import files
from pathlib import Path

import pytest

from depthbench.data import tokenizer
from depthbench.data.manifest import pypi_text
from depthbench.errors import DataError

COMMITTED = Path(str(files("depthbench.data"))) / pypi_text().tokenizer.file
TEXTS = [
    "plain words, and more words",
    "é漢字🙂 mixed\n\n\twith blanks   and 123",
    "an <|endoftext|> that someone wrote",
    "",
]


def test_the_committed_file_is_the_one_the_manifest_pins() -> None:
    assert hashlib.sha256(COMMITTED.read_bytes()).hexdigest() == pypi_text().tokenizer.sha256
    loaded = tokenizer.load(COMMITTED)
    assert loaded.get_vocab_size() == pypi_text().tokenizer.vocab_size == 4096
    assert tokenizer.end_of_text(loaded) == 0


@pytest.mark.parametrize("text", TEXTS)
def test_token_bytes_add_up_to_the_text(text: str) -> None:
    loaded = tokenizer.load(COMMITTED)
    ids = loaded.encode(text).ids
    assert tokenizer.token_bytes(loaded)[ids].sum() == len(text.encode())
    assert 0 not in ids  # text never ends a document
    assert loaded.decode(ids, skip_special_tokens=False) == text


def test_token_bytes_of_single_bytes_and_specials() -> None:
    sizes = tokenizer.token_bytes(tokenizer.load(COMMITTED))
    assert sizes[0] == 0
    assert (sizes[1:257] == 1).all()
    assert sizes.min() == 0
    assert (sizes == 0).sum() == 1


def test_training_again_gives_the_same_file() -> None:
    texts = [f"number {n} of the {n % 7} ways to say it" for n in range(500)]
    first, second = (tokenizer.serialise(tokenizer.train(texts, 300)) for _ in range(2))
    assert first == second
    assert tokenizer.train(texts, 300).get_vocab_size() == 300


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(DataError, match=r"broken\.json is not a tokenizer file"):
        tokenizer.load(path)
