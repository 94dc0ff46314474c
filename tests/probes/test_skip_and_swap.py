"""Skipping and exchanging blocks, for every design, against forms written out from the equations
and against models whose parameters were moved by hand; in float64."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

import residuals
from depthbench import probes
from depthbench.model.decoder import Decoder
from depthbench.probes.executed import Executed
from tests.probes import reference, reference_later
from tests.probes.reference import Order, Run, Trace, attention_residuals, whole
from tests.residuals.kit import make_model, perturb, shape_of, tokens_of

K = 4
ALL: Order = list(range(K))
CASES = [*reference.CASES, *reference_later.CASES]
IDS = ["-".join([name, *map(str, options)]) for name, options, _ in CASES]
cases = pytest.mark.parametrize(("name", "options", "run"), CASES, ids=IDS)


def built(name: str, options: dict[str, Any]) -> tuple[Decoder, Executed, Tensor, Tensor]:
    model = make_model(name, shape_of(K, 8), eps=1e-5, **options)
    perturb(model)
    tokens = tokens_of(2, 4)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    return model, Executed(model, inputs, targets), inputs, targets


def without(place: int) -> Order:
    return [None if p == place else p for p in ALL]


def swapped(i: int, j: int) -> Order:
    return [{i: j, j: i}.get(p, p) for p in ALL]


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


def relative(changed: Tensor, original: Tensor) -> float:
    return ((changed - original).norm(dim=-1) / original.norm(dim=-1)).mean().item()


def measured(stack: Executed, name: str, **thresholds: float) -> dict[str, Any]:
    probe = probes.get(name)
    return probe.measure(stack, {**probe.thresholds, **thresholds}).values


def test_every_registered_design_has_a_reference() -> None:
    assert {name for name, _, _ in CASES} == set(residuals.names())


@cases
@torch.no_grad()
def test_states_outputs_and_read_outs(name: str, options: dict[str, Any], run: Run) -> None:
    model, stack, inputs, targets = built(name, options)
    trace = whole(run, model, inputs, ALL)
    assert len(stack.z) == len(stack.points) == K + 1
    for place in range(K + 1):
        close(stack.z[place], trace.z[place])
        logits = model.head(stack.read_out(place, stack.points[place]))
        close(logits, trace.logits(model, place))
    for actual, expected in zip(stack.outputs, trace.outputs, strict=True):
        close(actual, expected)
    assert stack.loss(stack.points[-1]) == pytest.approx(trace.loss(model, targets), rel=1e-10)
    expected = model.token_nll(inputs, targets).mean().item()
    assert stack.loss(stack.points[-1]) == pytest.approx(expected, rel=1e-12)


@cases
@torch.no_grad()
def test_pruning_is_the_loss_without_the_block(
    name: str, options: dict[str, Any], run: Run
) -> None:
    model, stack, inputs, targets = built(name, options)
    loss = whole(run, model, inputs, ALL).loss(model, targets)
    found = measured(stack, "pruning")["increase"]
    expected = [whole(run, model, inputs, without(s)).loss(model, targets) - loss for s in ALL]
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-11)
    assert min(map(abs, expected)) > 1e-6  # each block counts, the first and the last included


@cases
@torch.no_grad()
def test_causal_score_is_its_formula(name: str, options: dict[str, Any], run: Run) -> None:
    model, stack, inputs, _ = built(name, options)
    assert_causal(measured(stack, "causal"), whole(run, model, inputs, ALL), model, inputs, run)


def assert_causal(
    found: dict[str, Any], intact: Trace, model: Decoder, inputs: Tensor, run: Run
) -> None:
    for s in ALL:
        trace = whole(run, model, inputs, without(s))
        for place in ALL:
            on_states, on_outputs = found["states"][s][place], found["outputs"][s][place]
            if place <= s:
                assert on_states is None
                assert on_outputs is None
                continue
            changed, original = (t.z[place + 1] - t.z[place] for t in (trace, intact))
            assert on_states == pytest.approx(relative(changed, original), rel=1e-8)
            expected = relative(trace.outputs[place], intact.outputs[place])
            assert on_outputs == pytest.approx(expected, rel=1e-8)
            assert expected > 1e-6


@cases
@torch.no_grad()
def test_permutation_score_is_its_formula(name: str, options: dict[str, Any], run: Run) -> None:
    """All pairs: neighbours, and the first with the last."""
    model, stack, inputs, targets = built(name, options)
    loss = whole(run, model, inputs, ALL).loss(model, targets)
    found = measured(stack, "permutation")["score"]
    for i in ALL:
        assert found[i][i] is None
        for j in range(i + 1, K):
            changed = whole(run, model, inputs, swapped(i, j)).loss(model, targets)
            assert found[i][j] == pytest.approx(abs(changed - loss) / loss, rel=1e-8, abs=1e-12)
            assert found[j][i] == found[i][j]
            assert found[i][j] > 1e-6


@pytest.mark.parametrize("group", [1, 2, 3, 6])
@torch.no_grad()
def test_copying_the_newest_source(group: int) -> None:
    model, stack, inputs, _ = built("block-attnres", {"group": group})
    run = attention_residuals(group, copy=True)
    intact = whole(run, model, inputs, ALL)
    assert_causal(measured(stack, "causal", copy=1.0), intact, model, inputs, run)


# A block that writes a slot, or is Post-LN, is no matter of parameters.
TAKE_THEIR_KIND_ALONG = ("moda", "mix-ln")


def moved_by_hand(model: Decoder, i: int, j: int) -> Decoder:
    """A model whose blocks i and j are exchanged by moving every parameter that should travel."""
    moved = deepcopy(model)
    design = moved.design

    def exchange(modules: Any, pairs: list[tuple[int, int]]) -> None:
        for a, b in pairs:
            modules[a], modules[b] = modules[b], modules[a]

    both = [(2 * i, 2 * j), (2 * i + 1, 2 * j + 1)]
    exchange(moved.blocks, [(i, j)])
    if hasattr(design, "q_norms"):
        for norms in (design.norms, design.q_norms, design.k_norms, design.v_norms):
            exchange(norms, [(i, j)])
    else:
        exchange(getattr(design, "norms", {}), both if hasattr(design, "norms") else [])
    if hasattr(design, "routing"):
        exchange(design.routing, both)
    if hasattr(design, "output_norms"):
        rule = len(design.output_norms) < 2 * K
        # KEEL: the gain of sublayer k is number k − 1. The first sublayer has none to give.
        pairs = both[1:] if rule and i == 0 else both
        exchange(design.output_norms, [(a - rule, b - rule) for a, b in pairs])
    if hasattr(design, "queries"):
        for tensor in (design.queries, design.key_gains):
            # Consumer c reads for sublayer c + 1: those of the MLP and of the right boundary.
            tensor[[2 * i, 2 * i + 1, 2 * j, 2 * j + 1]] = tensor[
                [2 * j, 2 * j + 1, 2 * i, 2 * i + 1]
            ]
    if hasattr(design, "scales"):
        # Rows of sublayers, or of the blocks that mix; the first block has none to give.
        first = 2 * K - len(design.scales) if len(design.scales) > K else 1
        pairs = both if first == 0 else [(i - 1, j - 1)] if i else []
        for a, b in pairs:
            design.scales[[a, b]] = design.scales[[b, a]]
    if design.name == "lns":
        for place, block in ((i, j), (j, i)):
            for norm in design.norms[2 * place : 2 * place + 2]:
                norm.gain *= ((place + 1) / (block + 1)) ** 0.5  # 1/√b travels
    return moved


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for name, options, _ in CASES if name not in TAKE_THEIR_KIND_ALONG],
    ids=[
        i for i, (name, _, _) in zip(IDS, CASES, strict=True) if name not in TAKE_THEIR_KIND_ALONG
    ],
)
@torch.no_grad()
def test_exchange_is_a_model_with_its_parameters_moved(name: str, options: dict[str, Any]) -> None:
    model, stack, inputs, targets = built(name, options)
    for i in ALL:
        for j in range(i + 1, K):
            moved = moved_by_hand(model, i, j)
            expected = moved.token_nll(inputs, targets).mean().item()
            found = stack.loss(stack.exchanged(i, j))
            assert found == pytest.approx(expected, rel=1e-11), (i, j)


@pytest.mark.parametrize("name", ["pre-ln", "post-ln", "sandwich-ln", "hc", "mhc", "mhc-lite"])
@torch.no_grad()
def test_skip_is_a_model_with_a_block_less(name: str) -> None:
    """Where no constant depends on the number of blocks, nor on the block's number."""
    model, stack, inputs, targets = built(name, {})
    for s in ALL:
        shorter = make_model(name, shape_of(K - 1, 8), eps=1e-5)
        kept = [b for b in ALL if b != s]
        shorter.embedding, shorter.head = model.embedding, model.head
        shorter.final_norm = model.final_norm
        for new, b in enumerate(kept):
            shorter.blocks[new] = model.blocks[b]
            for modules in ("norms", "output_norms", "routing"):
                for half in (0, 1) if hasattr(model.design, modules) else ():
                    theirs = getattr(model.design, modules)[2 * b + half]
                    getattr(shorter.design, modules)[2 * new + half] = theirs
        found = stack.loss(stack.end(s + 1, stack.skipped(s)))
        expected = shorter.token_nll(inputs, targets).mean().item()
        assert found == pytest.approx(expected, rel=1e-12), s


@pytest.mark.parametrize("name", residuals.names())
@torch.no_grad()
def test_in_a_loop_every_visit_of_a_block_is_a_place(name: str) -> None:
    rounds = 2
    model = make_model(name, shape_of(2, 8), eps=1e-5, rounds=rounds)
    perturb(model)
    tokens = tokens_of(2, 6)
    stack = Executed(model, tokens[:, :-1], tokens[:, 1:])
    assert stack.num_places == 2 * rounds
    expected = model.token_nll(tokens[:, :-1], tokens[:, 1:]).mean().item()
    assert stack.loss(stack.points[-1]) == pytest.approx(expected, rel=1e-12)
    for name_of_probe in ("causal", "permutation", "pruning"):
        assert measured(stack, name_of_probe)
