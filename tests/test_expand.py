"""Parts and controls of a suite: which cells there are, against lists written by hand."""

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from depthbench.config import CoreLoop, CorpusRef
from depthbench.errors import InputError
from depthbench.expand import expand
from depthbench.ledger import ledger
from depthbench.suite import Suite, load_suite

CORPUS = CorpusRef(name="none", hash="aa", tokenizer_hash="bb", vocab_size=500)
SHAPE = {"layers": 6, "d_model": 40, "ffn": 112, "heads": 2}
WIDER = SHAPE | {"d_model": 80, "ffn": 208}
SIZES = {"match_on": None, "vocab_size": 500, "norm_eps": 1e-10}


def core(forward: int, **changes: Any) -> dict[str, Any]:
    loop = {"layout": "prelude-core-coda", "prelude": 1, "coda": 1, "forward": forward}
    return loop | changes


def suite(**changes: Any) -> Suite:
    document = {
        "name": "unit",
        "designs": ["pre-ln"],
        "ladder": SIZES | {"shapes": [SHAPE]},
        "corpus": "none",
        "sequence_length": 64,
        "batch_size": 4,
        "budget": {"tokens": 256_000},
        "learning_rate": {"default": 1e-3},
        "seeds": [0],
    }
    return Suite.model_validate(document | changes)


def described(given: Suite) -> list[tuple[int, str, int]]:
    """Layers, loop and steps of every cell."""
    found = []
    for config in expand(given, CORPUS):
        loop: Any = config.loop
        tied = loop is not None and getattr(loop, "tied", True)
        text = f"{'' if tied else 'untied '}{loop.forward}/{loop.backward}" if loop else "none"
        found.append((config.shape.layers, text, config.steps))
    return found


def test_also_replaces_axes_and_a_cell_asked_for_twice_is_there_once() -> None:
    given = suite(
        loops=[core(1), core(2)],
        also=[
            {"budget": {"tokens": 512_000}},
            {"loops": [core(2), core(4)], "ladder": SIZES | {"shapes": [SHAPE, WIDER]}},
            {"seeds": [1], "loops": [None]},
        ],
    )
    found = [
        (c.shape.d_model, c.loop and c.loop.forward, c.steps, c.seed) for c in expand(given, CORPUS)
    ]
    assert found == [
        (40, 1, 1000, 0),
        (40, 2, 1000, 0),
        (40, 1, 2000, 0),
        (40, 2, 2000, 0),
        (40, 4, 1000, 0),
        (80, 2, 1000, 0),
        (80, 4, 1000, 0),
        (40, None, 1000, 1),
    ]


def test_controls_of_a_core_loop() -> None:
    """Executed blocks of (4, 2) over 1-4-1 are 1 + 16 + 1; the FLOPs of the deep stack agree."""
    given = suite(
        loops=[core(1), core(4, backward=2)],
        controls=["equal-parameters", "equal-flops", "untied"],
    )
    cells = expand(given, CORPUS)
    layers_and_loops = [(layers, loop) for layers, loop, _ in described(given)]
    assert layers_and_loops == [
        (6, "1/1"),
        (6, "4/2"),
        (6, "none"),
        (18, "none"),
        (6, "untied 4/4"),
    ]
    looped, same, deep, untied = (ledger(config) for config in cells[1:])
    block = 4 * 40 * 40 + 3 * 40 * 112 + 2 * 40
    assert looped.backbone - same.backbone == 2 * 40 * 40 + 2 * 40  # the injection, and two norms
    assert deep.backbone == 18 * block
    assert untied.recurrent == 0
    assert untied.once == untied.executed == 18 * block + 4 * (2 * 40 * 40 + 40) + 40
    one_step = deep.train_flops_per_token * cells[3].tokens_per_step
    assert 0 <= looped.total_flops - deep.total_flops < one_step


def test_controls_of_a_whole_loop_are_one_deep_stack() -> None:
    """Untied, a whole loop is a plain stack as deep, and its FLOPs are the same."""
    given = suite(
        designs=["deeploop"],
        loops=[{"layout": "whole", "rounds": 3}],
        controls=["equal-flops", "untied", "equal-parameters"],
    )
    assert described(given) == [(6, "3/3", 1000), (6, "none", 1000), (18, "none", 1000)]


@pytest.mark.parametrize("design", ["hc", "moda"])
def test_matching_the_total_counts_the_blocks_that_an_untied_loop_has(design) -> None:
    """Its cores are blocks of their own: all are narrowed, and the total is Pre-LN's untied one."""
    wide = {"layers": 4, "d_model": 64, "ffn": 176, "heads": 2}
    axes = {"ladder": SIZES | {"shapes": [wide]}, "loops": [core(3)], "controls": ["untied"]}
    matched = expand(suite(match="total", designs=[design], **axes), CORPUS)
    plain = expand(suite(designs=["pre-ln"], **axes), CORPUS)
    for ours, theirs in zip(matched, plain, strict=True):
        assert ours.loop == theirs.loop
        assert ledger(ours).parameters == pytest.approx(ledger(theirs).parameters, rel=0.005)


@pytest.mark.parametrize("loop", [core(3), {"layout": "whole", "rounds": 2}])
@pytest.mark.parametrize("budget", [{"tokens_per_parameter": 2.0}, {"tokens": 25_600}])
def test_an_untied_control_trains_as_long_as_its_loop(loop, budget) -> None:
    looped, untied = expand(suite(loops=[loop], budget=budget, controls=["untied"]), CORPUS)
    assert untied.steps == looped.steps


def test_a_part_with_a_ladder_of_its_own_has_its_epsilon() -> None:
    other = SIZES | {"shapes": [WIDER], "norm_eps": 1e-6}
    found = {c.shape.d_model: c.norm_eps for c in expand(suite(also=[{"ladder": other}]), CORPUS)}
    assert found == {40: 1e-10, 80: 1e-6}
    given = suite(also=[{"ladder": other}], norm_eps=1e-8)
    assert {c.norm_eps for c in expand(given, CORPUS)} == {1e-8}


def test_the_looped_suite_is_what_its_law_needs() -> None:
    cells = expand(load_suite("looped"), CORPUS.model_copy(update={"vocab_size": 4096}))
    tied = [c for c in cells if isinstance(c.loop, CoreLoop) and c.loop.tied]
    pairs = {(1, 1), (2, 2), (4, 2), (8, 1), (8, 8)}
    widths, budgets = {40, 56, 80, 104}, {499_712, 999_936, 1_999_872}
    found = {
        (c.shape.layers, c.shape.d_model, c.loop.forward, c.loop.backward, c.tokens)
        for c in tied
        if c.loop
    }
    law = {(6, d, T, B, D) for d in widths for T, B in pairs for D in budgets}
    additivity = {(4, d, T, B, 999_936) for d in (56, 104) for T, B in pairs}
    assert found == law | additivity
    assert len(tied) == len(found) == 70
    sizes = [ledger(c).backbone for c in tied if c.shape.layers == 6]
    assert 0.1e6 < min(sizes) < 0.15e6
    assert 0.75e6 < max(sizes) < 1e6
    controls = [c for c in cells if c not in tied]
    layers = sorted((c.shape.layers, c.loop.forward if c.loop else 0) for c in controls)
    assert layers == [(6, 0), (6, 2), (6, 4), (6, 8), (10, 0), (18, 0), (34, 0), (34, 0)]
    assert {c.shape.d_model for c in controls} == {56}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"also": [{"bugdet": {"tokens": 1000}}]}, r"also\.0\.bugdet.*'budget'"),
        ({"also": [{"budget": {"tokens": 100}}]}, r"also\.0\.budget\.tokens = 100 is less"),
        ({"also": [{"seeds": [1, 1]}]}, r"also\.0\.seeds: seed 1 stands more than once"),
        ({"controls": ["equal-flop"]}, r"controls\.0 = 'equal-flop'.*'equal-flops'"),
        ({"loops": [core(2, injectoin="add")]}, r"injectoin.*'injection'.*prelude, coda, forward"),
        (
            {"loops": [{"layout": "whole", "round": 2}]},
            r"round = 2.*'rounds'.*keys: layout, rounds",
        ),
        ({"loops": [core(3, backward=2, tied=False)]}, r"first cores would never learn"),
        ({"loops": [core(3000)]}, r"forward = 3000: .*less than or equal to 256"),
        ({"ladder": SIZES | {"shapes": [SHAPE], "target": 100}}, r"a ladder of sizes neither"),
        ({"ladder": SIZES | {"shapes": [SHAPE], "match_on": "total"}}, r"matched ladder has both"),
        ({"ladder": SIZES | {"shapes": [SHAPE, SHAPE]}}, r"shapes\.1 repeats 6 layers"),
    ],
)
def test_a_mistake_is_named(tmp_path, changes, message) -> None:
    path = tmp_path / "unit.yaml"
    document = suite().model_dump(mode="json", exclude={"designs", "ladder", "also", "measures"})
    document |= {"designs": ["pre-ln"], "ladder": SIZES | {"shapes": [SHAPE]}} | changes
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(InputError, match=message):
        load_suite(str(path))


def test_a_loop_that_leaves_no_core_is_refused() -> None:
    with pytest.raises(InputError, match="leave no block of 6 to the core"):
        expand(suite(loops=[core(2, prelude=3, coda=3)]), CORPUS)
    with pytest.raises(ValidationError, match="stands twice"):
        suite(loops=[core(2), core(2, backward=2)])
