import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from depthbench.data import Corpus, LocalOptions, open_corpus, prepare
from depthbench.data.local import FEW_DOCUMENTS
from depthbench.errors import InputError


def decoded(corpus: Corpus) -> tuple[str, str]:
    """All training and all validation text."""
    encoder = corpus.tokenizer()
    (validation,) = corpus.validation.values()
    train, held_out = (
        encoder.decode(s.tolist(), skip_special_tokens=False) for s in (corpus.train, validation)
    )
    return train, held_out


def test_txt_jsonl_and_parquet_of_the_same_text_are_the_same_corpus(
    tmp_path: Path, cache: Path, texts: list[str], options: LocalOptions
) -> None:
    folder, rows = tmp_path / "a" / "same", tmp_path / "same.jsonl"
    (folder / "inner").mkdir(parents=True)
    for n, text in enumerate(texts):
        (folder / ("inner" if n % 2 else "") / f"{n}.txt").write_text(text)
    rows.write_text("".join(json.dumps({"body": text, "n": 1}) + "\n" for text in texts))
    pq.write_table(pa.table({"body": texts}), tmp_path / "same.parquet")
    body = options.model_copy(update={"text": "body"})
    hashes = {
        open_corpus(prepare(folder, cache, local=options)).hash,
        open_corpus(prepare(rows, cache, local=body)).hash,
        open_corpus(prepare(str(tmp_path / "same.parquet"), cache, local=body)).hash,
    }
    assert len(hashes) == 1
    assert len(list((cache / "corpora").glob("same-*"))) == 3
    assert not list(cache.rglob("*.arrow"))  # the reading folder of `datasets` is gone


def test_one_long_file_is_divided_by_pieces(
    tmp_path: Path, cache: Path, options: LocalOptions
) -> None:
    paragraphs = [f"Paragraph {n}: " + f"word{n % 13} " * 30 for n in range(900)]
    (tmp_path / "book.txt").write_text("\n\n".join(paragraphs))
    train, validation = decoded(open_corpus(prepare(tmp_path / "book.txt", cache, local=options)))
    for n in range(900):
        assert (f"Paragraph {n}:" in train) + (f"Paragraph {n}:" in validation) == 1
    assert 0.02 < len(validation) / len(train) < 0.3


def test_documents_stay_whole_and_equal_texts_on_one_side(
    tmp_path: Path, cache: Path, options: LocalOptions
) -> None:
    long = [" ".join(f"d{n}w{k}" for k in range(30)) for n in range(2 * FEW_DOCUMENTS)]
    (tmp_path / "twice.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in long * 2))
    small = options.model_copy(update={"max_characters": 60})
    train, validation = decoded(open_corpus(prepare(tmp_path / "twice.jsonl", cache, local=small)))
    for n in range(len(long)):
        sides = {"train" if f"d{n}w{k}" in train else "validation" for k in (0, 15, 29)}
        assert len(sides) == 1
        assert (f"d{n}w0 " in train) != (f"d{n}w0 " in validation)


def test_the_committed_tokenizer_on_request(jsonl: Path, cache: Path) -> None:
    made = open_corpus(prepare(jsonl, cache, local=LocalOptions(tokenizer="pypi-text")))
    assert made.vocab_size == 4096
    assert made.token_bytes.dtype == np.int32


def test_datasets_writes_only_into_the_cache(
    jsonl: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    prepare(jsonl, cache, local=LocalOptions(vocab_size=300))
    assert not (tmp_path / "home").exists()


def write_numbers(path: Path) -> None:
    path.write_text('{"text": 1}\n{"text": 2}\n')


def write_broken(path: Path) -> None:
    path.write_text('{"text": "fine"}\n{"text": \n')


def write_little(path: Path) -> None:
    path.write_text('{"text": "a single text"}\n')


def write_other_column(path: Path) -> None:
    path.write_text('{"txet": "a"}\n')


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_numbers, r"bad\.jsonl: column 'text' holds int64"),
        (write_broken, r"cannot read .*bad\.jsonl"),
        (write_little, r"only 1 pieces of text, and none was drawn for validation"),
        (write_other_column, r"unknown column 'text': did you mean 'txet'"),
    ],
)
def test_bad_files_are_refused_and_leave_nothing(
    tmp_path: Path, cache: Path, write: Callable[[Path], None], message: str
) -> None:
    write(tmp_path / "bad.jsonl")
    with pytest.raises(InputError, match=message):
        prepare(tmp_path / "bad.jsonl", cache)
    assert [path.name for path in (cache / "corpora").iterdir()] == [".lock"]


def test_folders_without_text_or_with_two_kinds_are_refused(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes.md").touch()
    with pytest.raises(InputError, match=r"folder has no text .* \.txt, \.jsonl, \.parquet"):
        prepare(folder, cache)
    (folder / "a.txt").touch()
    (folder / "b.jsonl").touch()
    with pytest.raises(InputError, match=r"several kinds, \.jsonl, \.txt"):
        prepare(folder, cache)
    assert not cache.exists()
