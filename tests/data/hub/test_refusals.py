"""What cannot be had is refused before anything of it is fetched, and leaves nothing behind."""

import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from depthbench.data import HubOptions, known_corpora, locate, prepare
from depthbench.data.hub import prepare as preparing
from depthbench.data.hub.estimate import Estimate, estimate
from depthbench.data.hub.options import GPT_NEOX, HubTokenizer, hub_corpus
from depthbench.data.hub.prepare import HubAccess
from depthbench.errors import DataError, InputError
from tests.data.hub.kit import SHARDS, Hub, texts_of

Usage = namedtuple("Usage", "total used free")


def left_in(cache: Path) -> list[str]:
    return sorted(
        path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


def test_the_paper_corpus_is_known_with_its_tokenizer() -> None:
    corpus = hub_corpus("fineweb-edu", HubOptions())
    assert corpus is not None
    assert corpus.repository == "HuggingFaceFW/fineweb-edu"
    assert len(corpus.revision) == 40  # a commit, so that the name means one text
    assert corpus.options.tokenizer.repository == GPT_NEOX
    assert corpus.options.tokenizer.vocab_size == 50280
    assert "fineweb-edu" in known_corpora()


@pytest.mark.parametrize(("text", "tokens"), [("8B", 8 * 10**9), ("1.5M", 1_500_000), (7000, 7000)])
def test_tokens_are_written_like_other_counts(text: Any, tokens: int) -> None:
    assert HubOptions.model_validate({"tokens": text}).tokens == tokens


@pytest.mark.parametrize("text", ["0", "8x", -1, "1.5"])
def test_other_counts_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="tokens"):
        HubOptions.model_validate({"tokens": text})


def test_what_is_taken_decides_the_folder(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"tokens": 1000},
        {"validation_tokens": 1000},
        {"validation_shards": 2},
        {"subset": "sample-100BT"},
        {"split": "test"},
        {"revision": "main"},
        {"text": "body"},
        {"tokenizer": {"repository": "a/b"}},
        {"tokenizer": {"vocab_size": 50304}},
    ]
    options = [HubOptions.model_validate(change) for change in changes]
    folders = {locate("fineweb-edu", tmp_path, hub=option) for option in options}
    assert len(folders) == len(options)
    assert locate("hf:a/b", tmp_path).name.startswith("a-b-")


def test_another_tokenizer_is_not_held_to_the_hash_of_gpt_neox() -> None:
    assert len(HubTokenizer().sha256) == 64
    assert HubTokenizer(repository="a/b").sha256 == ""
    assert HubTokenizer(repository="a/b").revision == "main"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subset": "sample-10B"}, r"unknown subset 'sample-10B': did you mean 'sample-10BT'"),
        ({"split": "trian"}, r"unknown split 'trian': did you mean 'train'"),
        ({"text": "txet"}, r"unknown column 'txet': did you mean 'text'"),
        ({"text": "score"}, r"column 'score' holds double, and text is needed"),
        ({"validation_shards": 5}, r"has 5 shards, and 5 of them are held out"),
        ({"subset": "default"}, r"has 1 shards, and 1 of them are held out"),
        (
            {"tokens": 10**6},
            r"is to have 1,000,000 tokens, and .* have about [\d,]+: ask for fewer",
        ),
        ({"tokenizer": {"repository": "u/s", "vocab_size": 300}}, r"more than vocab_size = 300"),
        ({"tokenizer": {"repository": "u/s", "sha256": "0" * 64}}, r"instead of 0000"),
    ],
)
def test_bad_options(changes: dict[str, Any], message: str, hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        hub.prepare(tmp_path, **changes)
    assert left_in(tmp_path) == []


def test_bad_places(hub: Hub, tmp_path: Path) -> None:
    options = hub.options()

    def attempt(access: HubAccess, name: str = "fineweb-edu", offline: bool = False) -> None:
        prepare(name, tmp_path / "cache", offline, hub=options, access=access)

    with pytest.raises(InputError, match=r"nowhere is no folder"):
        attempt(replace(hub.access(), source=tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"nowhere is no file"):
        attempt(replace(hub.access(), tokenizer=tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"give --source and --tokenizer"):
        attempt(HubAccess(tokenizer=hub.tokenizer), offline=True)
    with pytest.raises(InputError, match=r"write it as hf:owner/name"):
        attempt(hub.access(), "hf:fineweb-edu")
    with pytest.raises(InputError, match=r"did you mean 'fineweb-edu'"):
        attempt(hub.access(), "finweb-edu")
    assert left_in(tmp_path) == []


def test_files_of_another_kind_are_refused(hub: Hub, tmp_path: Path) -> None:
    source = tmp_path / "copy"
    (source / "sample/10BT").mkdir(parents=True)
    (source / "sample/10BT/a.jsonl").write_text('{"text": "a"}\n')
    (source / "README.md").write_bytes((hub.source / "README.md").read_bytes())
    with pytest.raises(InputError, match=r"a\.jsonl is not parquet"):
        Hub(source, hub.tokenizer).prepare(tmp_path / "cache")


def test_a_tokenizer_without_bytes_is_refused(hub: Hub, tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"<|endoftext|>": 0, "the": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "words.json"))
    with pytest.raises(InputError, match="it is no byte-level tokenizer"):
        Hub(hub.source, tmp_path / "words.json").prepare(tmp_path / "cache")


def test_too_little_disk_is_told_in_bytes(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 5000, 5000))
    with pytest.raises(DataError, match=r"needs ([\d,]+) bytes of disk, and .* has 5,000 free"):
        hub.prepare(tmp_path)
    assert left_in(tmp_path) == []


def test_the_estimate_comes_first_and_is_right(hub: Hub, tmp_path: Path) -> None:
    heard: list[Estimate] = []

    def listen(ahead: Estimate) -> None:
        assert not list(tmp_path.rglob("*.bin"))
        heard.append(ahead)

    access = hub.access(1, on_estimate=listen)
    folder = prepare("fineweb-edu", tmp_path, hub=hub.options(), access=access)
    (ahead,) = heard
    encoder = Tokenizer.from_file(str(hub.tokenizer))
    encoder.encode_special_tokens = True
    by_shard = []
    for shard in range(len(SHARDS)):
        texts = [text for text in texts_of(shard) if text]
        count = sum(len(encoder.encode(text).ids) + 1 for text in texts)
        by_shard.append((count, sum(len(text.encode()) for text in texts) / count))
    assert ahead.available_tokens == pytest.approx(4 * by_shard[0][0], rel=0.1)
    assert ahead.sample.bytes_per_token == pytest.approx(by_shard[0][1], rel=0.05)
    assert ahead.text_bytes == pytest.approx(7000 * by_shard[0][1], rel=0.05)
    assert ahead.shards == 4
    assert ahead.download_bytes == 0  # a local copy
    assert ahead.disk_bytes > 2 * 2 * 7000  # every token twice, two bytes each
    assert sum(file.stat().st_size for file in folder.glob("*.bin")) < ahead.disk_bytes


def test_too_few_tokens_in_the_end_cost_no_second_tokenising(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hopeful(*arguments: Any) -> Estimate:
        return replace(estimate(*arguments), available_tokens=float("inf"))

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "estimate", hopeful)
        with pytest.raises(DataError, match=r"have ([\d,]+) tokens, not 100,000") as error:
            hub.prepare(tmp_path, tokens=100_000)
    most = int(str(error.value).split(" have ")[1].split(" tokens")[0].replace(",", ""))
    monkeypatch.setattr("depthbench.data.hub.gather.write_shard", None)  # calling it would raise
    corpus = hub.prepare(tmp_path, tokens=most)
    assert len(corpus.train) == most
    assert not list(tmp_path.glob("shards/*/*"))
