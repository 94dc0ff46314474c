"""The search as a whole, on losses that are given by a formula instead of training."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from depthbench.config import CellConfig, CorpusRef, Tuned
from depthbench.errors import InputError
from depthbench.expand import expand
from depthbench.inputs import validated
from depthbench.suite import Suite
from depthbench.tuning import first_cells, search

CORPUS = CorpusRef(name="none", hash="aa", tokenizer_hash="bb", vocab_size=500)
GRID = [1e-3, 2e-3, 4e-3]
LADDER = {
    "match_on": None,
    "vocab_size": 500,
    "norm_eps": 1e-10,
    "shapes": [
        {"layers": 2, "d_model": 64, "ffn": 176, "heads": 2},
        {"layers": 4, "d_model": 48, "ffn": 128, "heads": 2},
        {"layers": 8, "d_model": 32, "ffn": 88, "heads": 2},
    ],
}


def suite(**changes: Any) -> Suite:
    document = {
        "name": "unit",
        "designs": ["pre-ln", "hc"],
        "ladder": LADDER,
        "corpus": "none",
        "sequence_length": 64,
        "batch_size": 4,
        "budget": {"tokens": 25_600},
        "tune": {"rates": GRID, "layers": [2, 8], "seeds": [100]},
        "seeds": [0, 1],
        "measures": {"probes": ["angular"]},
    }
    return validated(Suite, document | changes, "suite unit")


class Trainer:
    """Losses of a parabola in log₂ rate, whose lowest point is where it is told."""

    def __init__(self, optimum: dict[tuple[str, int], float], diverges_above: float = 1.0) -> None:
        self.optimum = optimum
        self.diverges_above = diverges_above
        self.rounds: list[list[CellConfig]] = []

    def __call__(self, cells: Sequence[CellConfig]) -> list[dict[str, Any]]:
        self.rounds.append(list(cells))
        return [self.row(cell) for cell in cells]

    def row(self, cell: CellConfig) -> dict[str, Any]:
        rate = cell.optimizer.learning_rate
        lowest = self.optimum[cell.design.name, cell.shape.layers]
        return {
            "design": cell.design.name,
            "design_version": cell.design.version,
            "options": json.dumps(cell.design.options),
            "loop": None,
            "layers": cell.shape.layers,
            "d_model": cell.shape.d_model,
            "learning_rate": rate,
            "seed": cell.seed,
            "status": "diverged" if rate > self.diverges_above else "done",
            "loss": 4 + math.log2(rate / lowest) ** 2,
        }


def test_the_first_round_is_one_grid_for_every_design_and_measures_nothing() -> None:
    cells = first_cells(suite(), CORPUS)
    assert len(cells) == 2 * 2 * 3
    assert {c.shape.layers for c in cells} == {2, 8}
    assert {c.role for c in cells} == {"tuning"}
    assert {c.seed for c in cells} == {100}
    assert {c.measures.probes for c in cells} == {()}
    for name in ("pre-ln", "hc"):
        assert sorted({c.optimizer.learning_rate for c in cells if c.design.name == name}) == GRID
    assert len({c.digest() for c in cells}) == 12


def test_the_search_goes_on_until_every_optimum_is_interior() -> None:
    train = Trainer({("pre-ln", 2): 2e-3, ("pre-ln", 8): 1.6e-2, ("hc", 2): 5e-4, ("hc", 8): 2e-3})
    rates = search(suite(), CORPUS, train)
    assert [len(cells) for cells in train.rounds] == [12, 14, 16, 17]
    tried = {
        (name, layers): sorted(
            cell.optimizer.learning_rate
            for cell in train.rounds[-1]
            if (cell.design.name, cell.shape.layers) == (name, layers)
        )
        for name, layers in train.optimum
    }
    assert tried["pre-ln", 8] == pytest.approx([*GRID, 8e-3, 1.6e-2, 3.2e-2])
    assert tried["hc", 2] == pytest.approx([2.5e-4, 5e-4, *GRID])
    assert tried["pre-ln", 2] == tried["hc", 8] == GRID
    scored = expand(suite(), CORPUS, rates.at)
    found = {
        (c.design.name, c.shape.layers): c.optimizer.learning_rate for c in scored if c.seed == 1
    }
    assert found["pre-ln", 2] == 2e-3
    assert found["pre-ln", 8] == pytest.approx(1.6e-2)
    assert found["pre-ln", 4] == pytest.approx(math.sqrt(2e-3 * 1.6e-2), rel=5e-3)
    assert found["hc", 4] == pytest.approx(1e-3, rel=5e-3)
    assert all(c.tuned is not None and not c.tuned.edge for c in scored)
    assert {c.role for c in scored} == {"scored"}


def test_a_search_that_ends_at_its_limit_is_marked() -> None:
    optimum = {(name, layers): 1.0 for name in ("pre-ln", "hc") for layers in (2, 8)}
    tune = {"rates": GRID, "layers": [2, 8], "seeds": [100], "extensions": 1}
    train = Trainer(optimum)
    scored = expand(suite(tune=tune), CORPUS, search(suite(tune=tune), CORPUS, train).at)
    assert [len(cells) for cells in train.rounds] == [12, 16]
    assert all(c.tuned is not None and c.tuned.edge for c in scored)
    assert {c.optimizer.learning_rate for c in scored} == {8e-3}


def test_divergence_bounds_the_search() -> None:
    optimum = {(name, layers): 4e-3 for name in ("pre-ln", "hc") for layers in (2, 8)}
    train = Trainer(optimum, diverges_above=6e-3)
    rates = search(suite(), CORPUS, train)
    assert [len(cells) for cells in train.rounds] == [12, 16]
    assert not any(c.tuned is None or c.tuned.edge for c in expand(suite(), CORPUS, rates.at))


def test_tuning_has_a_budget_of_its_own_and_no_part_in_a_scored_digest() -> None:
    tune = {"rates": GRID, "layers": [2], "seeds": [100], "budget": {"tokens": 5120}}
    assert {c.steps for c in first_cells(suite(tune=tune), CORPUS)} == {20}
    scored = expand(suite(tune=tune), CORPUS)
    assert {c.steps for c in scored} == {100}
    cell = scored[0]
    found = Tuned(rates=(1e-3, 2e-3), seeds=(100,), edge=False, interpolated=False)
    assert cell.digest() == cell.model_copy(update={"tuned": found}).digest()
    assert cell.digest() != cell.model_copy(update={"role": "tuning"}).digest()


def test_only_what_some_part_scores_is_tuned() -> None:
    """A design and a loop that never meet are no pair, whatever else the parts hold."""
    whole = {"layout": "whole", "rounds": 2}
    given = suite(designs=["hc", "lns"], also=[{"designs": ["pre-ln"], "loops": [whole]}])
    pairs = {(c.design.name, c.loop is None) for c in first_cells(given, CORPUS)}
    assert pairs == {("hc", True), ("lns", True), ("pre-ln", False)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tune": {"rates": [1e-3, 2e-3], "layers": [2], "seeds": [9]}}, r"tune\.rates"),
        ({"tune": {"rates": [1e-3, 2e-3, 5e-3], "layers": [2], "seeds": [9]}}, "geometric grid"),
        ({"tune": {"rates": [1e-3, 3e-3, 9e-3], "layers": [2], "seeds": [9]}}, "factor 2 or finer"),
        ({"tune": {"rates": [4e-3, 2e-3, 1e-3], "layers": [2], "seeds": [9]}}, "ascending"),
        ({"tune": {"rates": GRID, "layers": [3], "seeds": [9]}}, r"has 3, .*choose among \[2, 4"),
        ({"tune": {"rates": GRID, "layers": [2], "seeds": [1]}}, "has 1, which is scored too"),
        ({"learning_rate": {"default": 1e-3}}, "give learning_rate or tune; given: both"),
        ({"tune": None}, "given: neither"),
        ({"tune": {"rates": [1, 1.01, 1.0201], "layers": [2], "seeds": [9]}}, "geometric grid"),
        ({"controls": ["untied"]}, "tune together with controls"),
    ],
)
def test_what_cannot_be_tuned_is_refused(changes, message) -> None:
    with pytest.raises(InputError, match=message):
        suite(**changes)
