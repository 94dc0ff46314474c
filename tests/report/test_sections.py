"""Only rows that agree in corpus, budget and recipe share a section."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from depthbench.report.sections import split
from depthbench.store import Record

Make = Callable[..., Record]


def counts(records: list[Record]) -> list[int]:
    return [len(section.records) for section in split(records)]


def test_comparable_rows_share_one_section(record: Make) -> None:
    records = [record(seed=seed, layers=layers) for seed in (1, 2) for layers in (4, 8)]
    sections = split(records)
    assert counts(records) == [4]
    assert sections[0].differing == {}


@pytest.mark.parametrize(
    ("change", "field", "values"),
    [
        ({"corpus_hash": "beef"}, "corpus", {"pypi-text aaaa", "pypi-text beef"}),
        ({"tokenizer_hash": "t2"}, "tokenizer", {"t1", "t2"}),
        ({"evaluation": "e2"}, "evaluation set", {"e1", "e2"}),
        ({"precision": "bf16"}, "precision", {"fp32", "bf16"}),
        ({"match": "total"}, "matching", {"shape", "total"}),
        ({"sequence_length": 64}, "sequence length", {"128", "64"}),
        ({"recipe": '{"weight_decay": 0.2}'}, "weight decay", {"0.1", "0.2"}),
        ({"tokens": 2_000_000}, "budget", {"1,000,000 tokens", "2,000,000 tokens"}),
    ],
)
def test_a_differing_field_is_named(
    record: Make, change: dict[str, Any], field: str, values: set[str]
) -> None:
    sections = split([record(), record(design="hc"), record(**change)])
    assert [len(section.records) for section in sections] == [2, 1]
    assert [set(section.differing) for section in sections] == [{field}, {field}]
    assert {section.differing[field] for section in sections} == values


def test_learning_rate_seed_and_host_do_not_split(record: Make) -> None:
    others = ({"learning_rate": 0.5}, {"seed": 9}, {"host": "b"}, {"suite": "other"})
    assert counts([record(), *(record(**other) for other in others)]) == [5]


def test_tokens_may_differ_between_shapes_but_not_within_one(record: Make) -> None:
    by_shape = [record(layers=4), record(layers=8, tokens=1_050_000)]
    assert counts(by_shape) == [2]
    assert counts([*by_shape, record(layers=4, design="hc", tokens=1_050_000)]) == [2, 1]


def test_flops_decide_on_the_flops_track(record: Make) -> None:
    same = {"budget": "flops", "total_flops": 1.00e15}
    near = {"budget": "flops", "total_flops": 1.02e15, "tokens": 700_000, "design": "mhc"}
    twice = {"budget": "flops", "total_flops": 2.00e15}
    pending = {"budget": "flops", "total_flops": None}
    assert counts([record(**change) for change in (same, near, pending, twice)]) == [3, 1]


def test_rows_of_one_run_folder_are_read_the_same(matrix: Any, records_of: Any) -> None:
    root: Path = matrix(seeds=(1, 2))
    assert counts(records_of(root)) == [60]
