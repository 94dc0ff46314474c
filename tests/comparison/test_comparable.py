"""What may be ranked together, and the names of what sets reports apart."""

from pathlib import Path
from typing import Any

import pytest

from depthbench.comparable import settings
from depthbench.report.paper import document as published
from tests.comparison.kit import call, row, rows_of, told, write

LOSSES = {"a": [[5.0, 5.1], [4.0, 4.1]], "b": [[5.5, 5.6], [4.5, 4.6]]}


def pair_of(tmp_path: Path, before: Any, after: Any) -> tuple[Path, Path]:
    return write(tmp_path / "before.csv", before), write(tmp_path / "after.csv", after)


@pytest.mark.parametrize(
    ("changes", "field", "was", "now"),
    [
        ({"corpus_hash": "bb"}, "corpus", "prose c0c0", "prose bb"),
        ({"tokenizer_hash": "bb"}, "tokenizer", "70ca", "bb"),
        ({"evaluation": "bb"}, "evaluation set", "e0e0", "bb"),
        ({"precision": "bf16"}, "precision", "fp32", "bf16"),
        ({"match": "total"}, "matching", "shape", "total"),
        ({"loop": '{"forward": 2}'}, "loop", "none", '{"forward": 2}'),
        ({"sequence_length": 64}, "sequence length", "128", "64"),
        ({"recipe": '{"beta1": 0.8, "decay": "by-role"}'}, "beta1", "0.9", "0.8"),
        ({"recipe": '{"beta1": 0.9}'}, "decay", "by-role", "not set"),
        ({"tokens": 200_000}, "budget", "100,000 tokens", "200,000 tokens"),
    ],
)
def test_another_setting_is_not_ranked_with_ours(tmp_path, changes, field, was, now) -> None:
    paths = pair_of(tmp_path, rows_of(LOSSES), rows_of(LOSSES, **changes))
    document = told(*paths, "--fail-on", "regression", code=3)
    [pair] = document["comparisons"]
    assert not pair["comparable"]
    assert pair["settings"] == []
    assert pair["differing"] == [{"field": field, "before": [was], "after": [now]}]
    output = call(*paths).output
    assert "A and B are not comparable" in output
    [line] = [line for line in output.splitlines() if line.startswith(f"{field} ")]
    assert line.split() == [*field.split(), *was.split(), *now.split()]
    assert "5.05" not in output  # no loss of either


@pytest.mark.parametrize(
    ("changes", "field", "was", "now"),
    [
        ({"design_version": 3}, "design version", ["1"], ["3"]),
        ({"heads": 4}, "heads", ["2"], ["4"]),
        ({"seed": 9}, "seed", ["1"], ["9"]),
        ({"layers": 12}, "layers", ["2"], ["12"]),
    ],
)
def test_no_run_in_common_is_no_comparison(tmp_path, changes, field, was, now) -> None:
    paths = pair_of(tmp_path, [row()], [row(**changes)])
    [pair] = told(*paths, code=3)["comparisons"]
    assert pair["differing"] == [{"field": field, "before": was, "after": now}]


def test_only_what_agrees_is_compared_and_the_rest_is_named(tmp_path) -> None:
    short = rows_of(LOSSES)
    long = rows_of({"a": [[3.0, 3.1]]}, tokens=900_000)
    worse = [r | {"loss": r["loss"] + 9} for r in rows_of(LOSSES, corpus_hash="bb")]
    paths = pair_of(tmp_path, [*short, *long], [*short, *worse])
    document = told(*paths, "--fail-on", "regression")
    [pair] = document["comparisons"]
    [setting] = pair["settings"]
    assert [d["verdict"] for d in setting["designs"]] == ["equal", "equal"]
    apart = {part["label"]: part for part in pair["not_compared"]}
    assert {label: part["num_rows"] for label, part in apart.items()} == {"A": 2, "B": 8}
    assert apart["A"]["differing"] == [
        {"field": "budget", "before": ["900,000 tokens"], "after": ["100,000 tokens"]}
    ]
    assert apart["B"]["differing"] == [
        {"field": "corpus", "before": ["prose c0c0"], "after": ["prose bb"]}
    ]
    output = call(*paths).output
    assert "8 rows of B differ in corpus: prose c0c0 before, prose bb after." in output


def test_one_pair_that_does_not_compare_is_enough(tmp_path) -> None:
    a, b = pair_of(tmp_path, rows_of(LOSSES), rows_of(LOSSES, design_version=1))
    c = write(tmp_path / "c.csv", rows_of(LOSSES, precision="bf16"))
    assert [p["comparable"] for p in told(a, b, c, code=3)["comparisons"]] == [True, False]


def test_the_name_of_a_ladder_sets_nothing_apart(tmp_path) -> None:
    paths = pair_of(tmp_path, rows_of(LOSSES), rows_of(LOSSES, ladder="inline"))
    assert told(*paths)["comparable"]
    rows = rows_of(LOSSES)
    twin = rows_of({"a": [[6.0, 6.1]]}, ladder="other", path="elsewhere")  # a shape of two ladders
    [first, second] = settings([*rows, *twin], rows)
    assert (len(first.before), len(first.after)) == (8, 8)
    assert (len(second.before), len(second.after)) == (2, 0)


def test_what_a_match_of_totals_changes_is_no_other_shape(tmp_path) -> None:
    paths = pair_of(tmp_path, [row(match="total", ffn=90)], [row(match="total", ffn=96)])
    assert told(*paths)["comparable"]
    paths = pair_of(tmp_path, [row(ffn=90)], [row(ffn=96)])
    [pair] = told(*paths, code=3)["comparisons"]
    assert pair["differing"] == [{"field": "ffn", "before": ["90"], "after": ["96"]}]


def test_flops_are_a_budget_of_their_own(tmp_path) -> None:
    """Tokens follow from a design's costs there, and are no part of a run's key."""
    flops = {"budget": "flops", "total_flops": 1e15}
    before = [row(seed=s, **flops) for s in (1, 2)]
    after = [row(seed=s, **flops, loss=5.1) | {"tokens": 99_000} for s in (1, 2)]
    document = told(*pair_of(tmp_path, before, after))
    assert document["comparisons"][0]["settings"][0]["designs"][0]["change"]["value"]
    [pair] = told(*pair_of(tmp_path, before, [row(seed=1)]), code=3)["comparisons"]
    assert {d["field"] for d in pair["differing"]} == {"budget track", "budget"}


def test_times_are_compared_within_one_host_only(tmp_path) -> None:
    before = [row(seed=1), row(seed=2), row("b"), row("c", tokens_per_second=None)]
    after = [
        row(seed=1, tokens_per_second=2000.0),
        row(seed=2, tokens_per_second=4500.0),
        row("b", threads=2, host="other", tokens_per_second=9000.0),
        row("c"),
    ]
    [pair] = told(*pair_of(tmp_path, before, after))["comparisons"]
    speeds = {d["design"]: d["speed"] for d in pair["settings"][0]["designs"]}
    assert speeds["a"]["ratio"] == pytest.approx(3.0)  # √(2 · 4.5)
    assert speeds["a"]["num"] == 2
    assert speeds["b"] == {
        "ratio": None,
        "num": 0,
        "reason": "host was bench and is other, threads was 1 and is 2",
    }
    assert speeds["c"]["reason"] == "speed was not recorded"
    output = call(*pair_of(tmp_path, before, after)).output
    assert "× 3.00" in output
    assert "speed not compared: host was bench and is other" in output


def test_published_numbers_stand_beside_and_rank_with_nothing(tmp_path) -> None:
    ours = rows_of({"pre-ln": [[5.0], [5.1]], "hc": [[4.9], [4.7]]})
    path = write(tmp_path / "ours.csv", ours)
    document = told(path, "paper", code=3)
    [pair] = document["comparisons"]
    assert pair["settings"] == []
    fields = {d["field"]: (d["before"], d["after"]) for d in pair["differing"]}
    assert fields["corpus"] == (["prose c0c0"], ["not published"])
    assert fields["tokenizer"] == (["70ca"], ["not published"])
    own, totals, backbones = document["alone"]
    assert (own["label"], totals["label"], backbones["label"]) == ("A", "B", "B")
    courses = {course["design"]["design"]: course for course in own["designs"]}
    assert courses["hc"]["depth"]["value"] == pytest.approx(-0.2)
    assert (courses["hc"]["place"], courses["pre-ln"]["place"]) == (1, 2)
    values = published()["loss"][0]["values"]
    courses = {course["design"]["design"]: course for course in totals["designs"]}
    assert totals["shapes"][0] == "L16/d1216"
    assert totals["shapes"][-1] == "L32/d896"
    assert courses["hc"]["depth"]["value"] == pytest.approx(2.7 - 2.729)
    shapes = list(values["pre-ln"])
    means = {name: sum(by[s] for s in shapes) for name, by in values.items()}
    assert [c["design"]["design"] for c in totals["designs"]] == sorted(
        means, key=means.__getitem__
    )
    assert courses["hc"]["rank"] is None
    assert {d["design"] for d in pair["gone_designs"]} == set()
    assert "keel" in {d["design"] for d in pair["new_designs"]}
    output = call(path, "paper").output
    assert published()["provenance"]["setting"] in output
    assert "none of its numbers ranks with another's" in output
    assert told("paper", path, code=3)["comparisons"][0]["differing"]


def test_a_report_of_two_ladders_stands_beside_the_published_numbers(tmp_path) -> None:
    """Both have the same shape, and the same seeds there."""
    rows = [*rows_of(LOSSES), *rows_of({"a": [[6.0, 6.1]]}, ladder="other", path="elsewhere")]
    page = tmp_path / "page.html"
    document = told(write(tmp_path / "two.csv", rows), "paper", "--html", page, code=3)
    titles = [part["title"] for part in document["alone"] if part["label"] == "A"]
    assert titles == ["ladder unit", "ladder other"]
    assert "Side by side" in page.read_text()


def test_ladders_of_several_budgets_keep_apart(tmp_path) -> None:
    """Every group of comparable rows has ranks and changes of its own."""
    rows = [*rows_of(LOSSES), *rows_of({"a": [[3.0, 3.1]]}, tokens=900_000)]
    changed = [r | {"loss": r["loss"] + (r["tokens"] > 100_000)} for r in rows]
    document = told(*pair_of(tmp_path, rows, changed))
    found = {
        setting["fields"]["budget"]: [d["change"]["value"] for d in setting["designs"]]
        for setting in document["comparisons"][0]["settings"]
    }
    assert found["100,000 tokens"] == [0.0, 0.0]
    assert found["900,000 tokens"] == [pytest.approx(1.0)]
