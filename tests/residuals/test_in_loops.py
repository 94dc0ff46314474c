"""What every design means inside a loop, against its equations run visit by visit; in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import residuals
from depthbench.config import CoreLoop, DesignRef, Loop, WholeLoop
from depthbench.designs import lay_out_parts
from depthbench.errors import InputError
from depthbench.model.looped import LoopedDecoder
from residuals import Design, register, registry
from residuals.pre_ln import PreLN
from tests.residuals.equations import CASES, IDS
from tests.residuals.kit import (
    EXACT_EPS,
    VOCAB,
    gradients,
    make_model,
    perturb,
    randn,
    relative,
    shape_of,
    tokens_of,
)
from tests.residuals.naive import Run, logits, looped_logits

EPS = 1e-5  # large enough that a forgotten eps shows
CORE: dict[str, Any] = {"prelude": 1, "coda": 2, "forward": 3}
every_case = pytest.mark.parametrize(("name", "options", "run"), CASES, ids=IDS)


def parts_of(name: str, layers: int, loop: Loop | None, **options: Any) -> dict[str, Design]:
    ref = DesignRef(name=name, version=residuals.get(name).version, options=options)
    return lay_out_parts(ref, shape_of(layers, 8), EPS, loop)


def looped(
    name: str, layers: int = 5, *, eps: float = EPS, backward: int | None = None, **options: Any
) -> LoopedDecoder:
    """Prelude of one block, a core of the rest three times, coda of two."""
    loop = CoreLoop(**CORE) if backward is None else CoreLoop(**CORE, backward=backward)
    shape = shape_of(layers, 8)
    ref = DesignRef(name=name, version=residuals.get(name).version, options=options)
    with torch.device("meta"):
        model = LoopedDecoder(shape, VOCAB, lay_out_parts(ref, shape, eps, loop), loop)
    model.to_empty(device="cpu")
    residuals.initialise(model, 0)
    return model.double()


def assert_same(model: Any, actual: Tensor, expected: Tensor) -> None:
    assert relative(actual, expected) < 1e-11
    weight = randn(*actual.shape)
    found, wanted = (gradients((x * weight).sum(), model) for x in (actual, expected))
    for parameter, gradient in wanted.items():
        assert relative(found[parameter], gradient) < 1e-9, parameter


@every_case
def test_whole_stack_in_rounds(name: str, options: dict[str, Any], run: Run) -> None:
    """Three blocks, three times: shared weights, constants and places of nine blocks."""
    model = make_model(name, shape_of(3, 8), eps=EPS, rounds=3, **options)
    perturb(model)
    tokens = tokens_of(1, 4)
    assert_same(model, model.logits(tokens), logits(model, tokens, run))


@every_case
def test_prelude_core_and_coda(name: str, options: dict[str, Any], run: Run) -> None:
    """Each segment, and each loop of the core, from its own start to its own finish."""
    model = looped(name, **options)
    perturb(model)
    tokens = tokens_of(1, 4)
    assert_same(model, model.logits(tokens), looped_logits(model, tokens, run))


@pytest.mark.parametrize(
    ("name", "options", "run"),
    [case for case in CASES if case[1] in ({}, {"pre_norm_first": True})],
    ids=[i for (_, o, _), i in zip(CASES, IDS, strict=True) if o in ({}, {"pre_norm_first": True})],
)
@torch.no_grad()
def test_a_core_without_prelude_and_coda(name: str, options: dict[str, Any], run: Run) -> None:
    """What holds at the first place holds in the first loop only."""
    loop, shape = CoreLoop(prelude=0, coda=0, forward=3), shape_of(2, 8)
    ref = DesignRef(name=name, version=residuals.get(name).version, options=options)
    model = LoopedDecoder(shape, VOCAB, lay_out_parts(ref, shape, EPS, loop), loop)
    model.to_empty(device="cpu")
    residuals.initialise(model, 0)
    model = model.double()
    perturb(model)
    tokens = tokens_of(1, 4)
    assert relative(model.logits(tokens), looped_logits(model, tokens, run)) < 1e-11


STARTS_AS_PRE_LN: list[tuple[str, dict[str, Any]]] = [
    ("hc", {}),
    ("mhc", {}),
    ("mhc-lite", {}),
    ("full-attnres", {}),
    ("block-attnres", {}),
    ("block-attnres", {"group": 3}),
    ("denseformer", {}),
    ("denseformer", {"dilation": 2, "period": 2}),
    ("value-residual", {"first": 0.0, "own": 1.0}),
    ("layerscale", {"start": 1.0}),
]


@pytest.mark.parametrize(("name", "options"), STARTS_AS_PRE_LN, ids=str)
def test_equality_at_initialisation_holds_in_both_layouts(
    name: str, options: dict[str, Any]
) -> None:
    tokens, targets = tokens_of(2, 6), tokens_of(2, 6, seed=4)
    for whole in (True, False):
        found = []
        for design, chosen in (("pre-ln", {}), (name, options)):
            if whole:
                model = make_model(design, shape_of(3), rounds=3, **chosen)
            else:
                model = looped(design, eps=EXACT_EPS, **chosen)
            x = model.logits(tokens)
            loss = F.cross_entropy(x.flatten(0, 1), targets.flatten())
            found.append((x, gradients(loss, model)))
        (expected, wanted), (actual, gradient) = found
        assert relative(actual, expected) < 1e-12
        for parameter in wanted:
            assert relative(gradient[parameter], wanted[parameter]) < 1e-11, parameter


# Executed blocks: 3 · 4 in rounds; 1 + 3 · 2 + 2 in prelude, core and coda.
ROUNDS = WholeLoop(rounds=4)
SEGMENTS = CoreLoop(**CORE)


@pytest.mark.parametrize(
    ("loop", "layers", "executed"),
    [(None, 3, 3), (ROUNDS, 3, 12), (SEGMENTS, 5, 9), (CoreLoop(**CORE, backward=1), 5, 9)],
    ids=["none", "whole", "segments", "truncated"],
)
def test_scales_count_the_executed_blocks(loop: Loop | None, layers: int, executed: int) -> None:
    """Of the whole model, in every segment alike, with loops that have no gradients."""
    N = executed
    for part in parts_of("deepnorm", layers, loop).values():
        assert part.alpha == pytest.approx((2 * N) ** 0.25, rel=1e-14)
        assert part.init_gain("v", 8, 8) == pytest.approx((8 * N) ** -0.25, rel=1e-14)
        assert part.init_gain("q", 8, 8) == 1
    for part in parts_of("deeploop", layers, loop).values():
        assert part.alpha == pytest.approx((2 * N) ** 0.5, rel=1e-14)
        assert part.init_gain("down", 8, 24) == pytest.approx((8 * N) ** -0.5, rel=1e-14)
    for part in parts_of("keel", layers, loop).values():
        assert part.alpha == 2 * N


@pytest.mark.parametrize(
    ("loop", "layers", "start"),
    [
        (None, 18, 0.1),
        (None, 19, 1e-5),
        (None, 24, 1e-5),
        (None, 25, 1e-6),
        (WholeLoop(rounds=6), 3, 0.1),
        (WholeLoop(rounds=5), 4, 1e-5),
        (WholeLoop(rounds=9), 3, 1e-6),
        (CoreLoop(prelude=1, coda=1, forward=8), 4, 0.1),
        (CoreLoop(prelude=1, coda=2, forward=8), 5, 1e-5),
        (CoreLoop(prelude=1, coda=2, forward=12), 5, 1e-6),
    ],
)
def test_gains_of_layerscale_start_by_the_executed_depth(
    loop: Loop | None, layers: int, start: float
) -> None:
    for part in parts_of("layerscale", layers, loop).values():
        part.to_empty(device="cpu")
        residuals.initialise(part, 0)
        assert part.scales.tolist() == [[pytest.approx(start)] * 8] * part.stack.num_sublayers


def shapes(part: Design) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in part.named_parameters()}


@pytest.mark.parametrize(
    ("name", "module", "plain", "whole", "segments"),
    [
        # The first attention has an outer norm of its own if it is ever visited again.
        ("keel", "output_norms.", 2 * 3 - 1, 2 * 3, [1, 4, 4]),
        # The last block's slot has a reader in a further round.
        ("moda", "maps.", 3 - 1, 3, [0, 1, 1]),
    ],
)
def test_modules_that_a_further_round_needs(
    name: str, module: str, plain: int, whole: int, segments: list[int]
) -> None:
    def count(part: Design) -> int:
        return sum(parameter.startswith(module) for parameter in shapes(part))

    assert count(parts_of(name, 3, None)["whole"]) == plain
    assert count(parts_of(name, 3, ROUNDS)["whole"]) == whole
    assert [count(part) for part in parts_of(name, 5, SEGMENTS).values()] == segments


@pytest.mark.parametrize(("forward", "num_norms"), [(1, 5), (2, 6)])
def test_first_attention_of_keel_in_a_core_without_prelude(forward: int, num_norms: int) -> None:
    """It is looped itself: from the second loop on it has an outer norm."""
    loop = CoreLoop(prelude=0, coda=0, forward=forward)
    assert len(parts_of("keel", 3, loop)["core"].output_norms) == num_norms


@pytest.mark.parametrize(
    ("name", "parameter", "plain", "whole", "segments"),
    [
        # Consumers: the sublayers that see several sources, and the read-out.
        ("full-attnres", "queries", 6, 7, [2, 4, 4]),
        # Blocks that ever mix, with two weights each.
        ("value-residual", "scales", 2, 3, [0, 1, 1]),
        # N(N + 3)/2 weights of N places.
        ("denseformer", "static", 9, 90, [2, 5, 5]),
    ],
)
def test_rows_that_a_further_round_needs(
    name: str, parameter: str, plain: int, whole: int, segments: list[int]
) -> None:
    def rows(part: Design) -> int:
        return shapes(part).get(parameter, (0,))[0]

    assert rows(parts_of(name, 3, None)["whole"]) == plain
    assert rows(parts_of(name, 3, ROUNDS)["whole"]) == whole
    assert [rows(part) for part in parts_of(name, 5, SEGMENTS).values()] == segments


def test_embedding_norm_of_deeploop_is_at_every_start() -> None:
    parts = parts_of("deeploop", 5, SEGMENTS)
    assert list(parts) == ["prelude", "core", "coda"]
    assert all("embedding_norm.gain" in shapes(part) for part in parts.values())


@pytest.mark.parametrize(("name", "tolerance"), [("hc", 1e-12), ("mhc", 5e-3), ("mhc-lite", 5e-3)])
def test_first_stream_to_read_follows_the_sublayer_and_not_the_visit(
    name: str, tolerance: float
) -> None:
    """Three blocks: the second round starts at visit 6, 6 mod 4 = 2, and reads stream 0 again."""
    model = make_model(name, shape_of(3, 8), rounds=2)
    H = randn(1, 1, 4, 8)
    for visit, stream in enumerate([0, 1, 2, 3, 0, 1] * 2):
        expected = H[:, :, stream] / H[:, :, stream].pow(2).mean(-1, keepdim=True).sqrt()
        assert relative(model.design.read(visit % 6, visit, (H,))[0], expected) < tolerance


def test_groups_of_block_attnres_count_the_visits_of_a_segment() -> None:
    assert parts_of("block-attnres", 3, None)["whole"].group == 2
    assert parts_of("block-attnres", 3, ROUNDS)["whole"].group == 2 * 2  # 12 blocks, eight groups
    long = CoreLoop(prelude=1, coda=1, forward=20)
    assert {part.group for part in parts_of("block-attnres", 4, long).values()} == {2}


NO_LOOP = "unit-no-loop"


@pytest.fixture
def _plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    residuals.names()
    monkeypatch.setattr(registry, "_designs", dict(registry._designs))

    @register
    class NoLoop(PreLN):
        """`x ← x + F(N(x))`, in one pass."""

        name = NO_LOOP
        title = "No loop"
        can_loop = False


@pytest.mark.usefixtures("_plugin")
@pytest.mark.parametrize("loop", [WholeLoop(rounds=2), CoreLoop(**CORE)], ids=["whole", "segments"])
def test_a_design_that_cannot_loop_is_refused_in_a_loop(loop: Loop) -> None:
    assert list(parts_of(NO_LOOP, 5, None)) == ["whole"]
    with pytest.raises(InputError, match=NO_LOOP) as refused:
        parts_of(NO_LOOP, 5, loop)
    said = str(refused.value)
    assert "can_loop = False" in said  # what happened
    assert "take the loop away, or choose another design" in said  # what to do


def test_the_designs_of_this_package_all_loop() -> None:
    assert all(residuals.get(name).can_loop for name in residuals.names())
