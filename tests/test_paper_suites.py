"""The paper suites against the published shapes, counts and recipe, and what they cost."""

import re
from collections import Counter
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import pytest

from depthbench import tuning
from depthbench.accelerators import ACCELERATORS, accelerator
from depthbench.config import CellConfig, CorpusRef
from depthbench.corpora import declared_ref
from depthbench.errors import InputError
from depthbench.expand import expand
from depthbench.ledger import ledger
from depthbench.model.build import lay_out_model
from depthbench.plan import Machine, PlannedCell, estimate
from depthbench.shapes import load_ladders
from depthbench.suite import Suite, load_suite

SUITES = ("paper-400m", "paper-300m-backbone", "paper-ladder", "paper-1600m")
CORPUS = CorpusRef(name="fineweb-edu", hash="aa", tokenizer_hash="bb", vocab_size=50_280)
EIGHT = ("pre-ln", "sandwich-ln", "lns", "deepnorm", "keel", "mhc", "block-attnres", "moda")
DEEP = ("hc", "full-attnres")
THREE = ("pre-ln", *DEEP)
# Which design is published at which depth. Ladder, then depths, then designs.
PUBLISHED = {
    "paper-400m": [
        ("400m", (16, 20, 24, 28, 32), (*EIGHT, *DEEP)),
        ("400m", (42, 70), DEEP),
    ],
    "paper-300m-backbone": [
        ("300m-backbone", (16, 24, 32, 42), THREE),
        ("300m-backbone", (70,), DEEP),
        ("300m-backbone", (84,), ("hc",)),
    ],
    "paper-ladder": [
        ("200m", (12, 18, 24), THREE),
        ("300m", (14, 21, 28), THREE),
        ("400m", (16, 24, 32), THREE),
        ("500m", (17, 26, 34), THREE),
    ],
    "paper-1600m": [("1600m", (28, 40, 54), THREE)],
}
# Millions: totals, of 300m-backbone the blocks alone.
COUNTS = {
    "400m": {16: 407, 20: 414, 24: 405, 28: 406, 32: 399, 42: 404, 70: 409},
    "300m-backbone": {16: 299, 24: 302, 32: 309, 42: 297, 70: 312, 84: 299},
    "200m": {12: 206, 18: 205, 24: 198},
    "300m": {14: 294, 21: 293, 28: 296},
    "500m": {17: 504, 26: 505, 34: 502},
    "1600m": {28: 1615, 40: 1607, 54: 1617},
}
STEP = 512 * 2048
PAGE = Path(__file__).parents[1] / "docs" / "paper-scale.md"


@cache
def suite(name: str) -> Suite:
    return load_suite(name)


@cache
def scored(name: str) -> tuple[CellConfig, ...]:
    return tuple(expand(suite(name), CORPUS))


@cache
def all_cells(name: str) -> tuple[CellConfig, ...]:
    return (*tuning.first_cells(suite(name), CORPUS), *scored(name))


def closed_total(config: CellConfig) -> int:
    """Of Pre-LN: attention, MLP, two gains a block; embedding, head and a last gain."""
    s, d = config.shape, config.shape.d_model
    attention = d * d * 2 + 2 * d * d * s.kv_heads // s.heads
    return s.layers * (attention + 3 * d * s.ffn + 2 * d) + 2 * 50_280 * d + d


@pytest.mark.parametrize("name", SUITES)
def test_designs_stand_at_the_shapes_at_which_they_are_published(name) -> None:
    found = {(c.ladder, c.shape.layers, c.design.name) for c in scored(name)}
    assert found == {
        place
        for ladder, depths, designs in PUBLISHED[name]
        for place in product((ladder,), depths, designs)
    }


@pytest.mark.parametrize("name", SUITES)
def test_shapes_are_those_of_the_shipped_ladder_of_that_name(name) -> None:
    ladders = load_ladders()
    for config in all_cells(name):
        ladder = ladders[config.ladder]
        assert config.shape in ladder.shapes
        assert config.match == "shape"
    for part in suite(name).parts():
        shipped = ladders[part.ladder.name]
        for field in ("match_on", "target", "tolerance", "vocab_size", "norm_eps"):
            assert getattr(part.ladder, field) == getattr(shipped, field), part.ladder.name


@pytest.mark.parametrize("name", SUITES)
def test_counts_of_the_baseline_are_the_published_ones(name) -> None:
    for config in scored(name):
        if config.design.name != "pre-ln":
            continue
        costs = ledger(config)
        assert costs.parameters == closed_total(config)
        counted = costs.backbone if config.ladder == "300m-backbone" else costs.parameters
        assert round(counted / 1e6) == COUNTS[config.ladder][config.shape.layers]


def test_every_model_has_the_parameters_that_its_ledger_says() -> None:
    """Laid out on the meta device, each design at each shape once."""
    models = {
        (config.design.name, config.shape): config for name in SUITES for config in scored(name)
    }
    # 400m: 10 · 5 + 2 · 2. The backbone's 15 less six shared ones; the sizes' 27 without 400m; 9.
    assert len(models) == 54 + (15 - 6) + 27 + 9
    for config in models.values():
        model = lay_out_model(config)
        assert all(p.device.type == "meta" for p in model.parameters())
        counted = sum(p.numel() for p in model.parameters())
        assert counted == ledger(config).parameters, (config.design.name, config.shape.layers)


@pytest.mark.parametrize("name", SUITES)
def test_the_recipe_is_the_papers(name) -> None:
    given = suite(name).tune
    assert given is not None
    for config in all_cells(name):
        recipe = config.optimizer
        assert (recipe.beta1, recipe.beta2, recipe.eps) == (0.9, 0.95, 1e-8)
        assert (recipe.weight_decay, recipe.clip) == (0.1, 1.0)
        assert (recipe.warmup_fraction, recipe.final_fraction) == (0.1, 0.1)
        assert config.tokens_per_step == STEP
        assert (config.precision, config.norm_eps) == ("bf16", 1e-6)
        assert (config.device, config.compile) == ("cuda", "blocks")
        assert config.corpus.name == "fineweb-edu"
        short = config.role == "tuning" and name == "paper-1600m"
        assert config.steps == (5 if short else 20) * closed_total(config) // STEP
        assert config.steps * STEP == config.tokens
        # Every rank trains whole micro-batches.
        assert config.batch_size % (config.ranks.num * config.micro_batch_size) == 0


@pytest.mark.parametrize("name", SUITES)
def test_rates_are_sought_alike_for_every_design_on_seeds_that_are_not_scored(name) -> None:
    cells = all_cells(name)
    tried = [c for c in cells if c.role == "tuning"]
    scored_seeds = {c.seed for c in cells if c.role == "scored"}
    assert not scored_seeds & {c.seed for c in tried}
    grids = {
        (design, layers): sorted(
            c.optimizer.learning_rate
            for c in tried
            if (c.design.name, c.shape.layers) == (design, layers)
        )
        for design in {c.design.name for c in cells}
        for layers in {c.shape.layers for c in tried}
    }
    first, *others = grids.values()
    assert len(first) == 4
    assert all(grid == first for grid in others)
    assert all(high / low == pytest.approx(2) for low, high in pairwise(first))
    # The ends of the ladder on which they are sought.
    depths = [shape.layers for shape in suite(name).ladder.shapes]
    assert {c.shape.layers for c in tried} == {min(depths), max(depths)}


@pytest.mark.parametrize("name", SUITES)
def test_every_score_has_two_seeds_and_the_baseline_five_at_one_shape(name) -> None:
    seeds = Counter((c.design.name, c.ladder, c.shape.layers) for c in scored(name))
    assert min(seeds.values()) == 2
    five = [design for (design, *_), num in seeds.items() if num > 2]
    # At 1.6B five runs of one thing would take longer than the cells of a design.
    assert five == ([] if name == "paper-1600m" else ["pre-ln"])
    assert sum(seeds.values()) == len(scored(name))


def test_bf16_weights_are_one_setting_away() -> None:
    given = load_suite("paper-400m", ["precision=paper_bf16"])
    assert {c.precision for c in expand(given, CORPUS)} == {"paper_bf16"}


@cache
def on_h100(name: str) -> tuple[PlannedCell, ...]:
    return tuple(estimate(all_cells(name), Machine(accelerator("h100"), 0.4)))


@pytest.mark.parametrize("name", SUITES)
def test_flops_and_device_hours_from_first_principles(name) -> None:
    """Pre-LN: six times every matrix entry and 6·K·d·T of causal attention a token; an H100 does
    989.4e12 of them a second at its peak, and is assumed to reach 40 %."""
    seen = 0
    for cell in on_h100(name):
        config, s = cell.config, cell.config.shape
        if config.design.name != "pre-ln":
            continue
        seen += 1
        gains = (2 * s.layers + 1) * s.d_model
        matrices = closed_total(config) - gains - 50_280 * s.d_model  # looking up is no product
        flops = config.tokens * (6 * matrices + 6 * s.layers * s.d_model * 2048)
        assert cell.ledger["total_flops"] == flops
        hours = flops / (989.4e12 * 0.4) / 3600
        assert cell.device_hours == pytest.approx(hours)
        assert cell.seconds == pytest.approx(hours * 3600 / 8)
        # The rule of thumb leaves out attention and counts the embedding, which is looked up.
        assert 0.8 < 6 * closed_total(config) * config.tokens / flops < 1.2
    assert seen


@pytest.mark.parametrize("name", SUITES)
def test_every_cell_fits_into_80_gb_as_it_stands(name) -> None:
    for cell in on_h100(name):
        assert cell.needs == (), (cell.config.design.name, cell.config.shape.layers)
        assert cell.rank_bytes < 80e9


def test_a_smaller_device_needs_checkpointing_where_streams_are_many_and_blocks_deep() -> None:
    planned = estimate(scored("paper-400m"), Machine(accelerator("a100-40gb")))
    needs = {(c.config.design.name, c.config.shape.layers): c.needs for c in planned}
    assert needs["hc", 70] == ("activation_checkpointing=true",)
    assert needs["pre-ln", 32] == ()


@pytest.mark.parametrize("name", SUITES)
def test_a_cell_holds_on_disk_two_checkpoints_one_more_and_its_weights(name) -> None:
    for cell in on_h100(name):
        checkpoint = 12 * cell.ledger["parameters"]
        assert cell.disk_bytes == pytest.approx(3 * checkpoint + checkpoint / 3, rel=1e-3)


def test_they_can_be_planned_before_the_corpus_is_prepared() -> None:
    given = suite("paper-400m")
    known = declared_ref(given.corpus, given.local)
    assert known.vocab_size == 50_280
    assert len(expand(given, known)) == len(scored("paper-400m"))


@pytest.mark.parametrize("name", SUITES)
def test_the_page_on_paper_scale_says_what_they_cost(name) -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells, costs = ([part.strip() for part in row.split("|")[1:-1]] for row in rows if name in row)
    planned = on_h100(name)
    tuned = [cell for cell in planned if cell.config.role == "tuning"]
    num_scored, num_tuned = (int(number) for number in re.findall(r"\d+", cells[3]))
    assert (num_scored, num_tuned) == (len(planned) - len(tuned), len(tuned))
    hours = sum(cell.device_hours for cell in planned)
    assert float(costs[1]) == pytest.approx(
        sum(cell.ledger["total_flops"] for cell in planned), rel=2e-3
    )
    assert int(costs[2].replace(",", "")) == round(hours)
    assert int(costs[3].replace(",", "")) == round(hours * 989.4 / 312)
    share = sum(cell.device_hours for cell in tuned) / hours
    assert costs[4] == f"{share:.0%}".replace("%", " %")
    assert costs[5] == f"{sum(cell.disk_bytes for cell in planned) / 2**40:.2f} TiB"
    # Follows the code of the designs, which may come to keep more or less.
    assert float(costs[6].split()[0]) == pytest.approx(
        max(cell.rank_bytes for cell in planned) / 1e9, rel=0.1
    )


def test_half_the_utilisation_takes_twice_as_long_and_a_lesser_device_longer() -> None:
    config = scored("paper-1600m")[0]
    hours = {
        (name, share): estimate([config], Machine(accelerator(name), share))[0].device_hours
        for name, share in (("h100", 0.4), ("h100", 0.2), ("a100", 0.4), ("H100", 0.4))
    }
    assert hours["h100", 0.2] == pytest.approx(2 * hours["h100", 0.4])
    assert hours["a100", 0.4] == pytest.approx(hours["h100", 0.4] * 989.4 / 312)
    assert hours["H100", 0.4] == hours["h100", 0.4]
    slow = estimate([config.model_copy(update={"precision": "fp32"})], Machine(accelerator("h100")))
    assert slow[0].device_hours == pytest.approx(hours["h100", 0.4] * 989.4 / 66.9)


def test_accelerators_are_named_and_sane() -> None:
    with pytest.raises(InputError, match=r"unknown accelerator 'h1000': did you mean 'h100'"):
        accelerator("h1000")
    for share in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match=r"utilisation = .*above 0 and at most 1"):
            Machine(accelerator("h100"), share)
    for name, each in ACCELERATORS.items():
        assert each.name == name == name.lower()
        # Sheets give figures with sparsity, too: none of these is twice what it should be.
        assert 1e14 < each.bf16_flops < 2.5e15
        assert each.fp32_flops < each.bf16_flops / 2
        assert 40e9 <= each.memory_bytes <= 200e9
