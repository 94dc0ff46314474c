"""Decoding with a key/value cache: the same numbers as without one, for every design."""

from typing import Any

import pytest
import torch
from torch import Tensor

import residuals
from depthbench.config import Shape
from depthbench.model.cache import KeyValueCache
from depthbench.model.decoder import Decoder
from depthbench.model.generate import generate
from tests.residuals.kit import VOCAB, make_model, perturb, shape_of, tokens_of

every_design = pytest.mark.parametrize("name", residuals.names())
GROUPED = Shape(layers=2, d_model=32, ffn=24, heads=4, kv_heads=2)
LENGTH = 13


def generic(name: str, shape: Shape = GROUPED, **options: Any) -> Decoder:
    """No parameter at its initial value, and attention far from uniform."""
    model = make_model(name, shape, **options)
    perturb(model, 0.4)
    return model


def in_chunks(model: Decoder, tokens_BT: Tensor, sizes: list[int]) -> tuple[Tensor, KeyValueCache]:
    cache = KeyValueCache()
    parts = [model.head(model(chunk, cache)) for chunk in tokens_BT.split(sizes, 1)]
    return torch.cat(parts, 1), cache


@every_design
@pytest.mark.parametrize(
    "sizes",
    [[LENGTH], [1] * LENGTH, [5, 1, 1, 4, 2]],
    ids=["prefill", "one by one", "chunks"],
)
@torch.no_grad()
def test_cached_logits_are_the_uncached(name: str, sizes: list[int]) -> None:
    model, tokens = generic(name), tokens_of(2, LENGTH)
    whole = model.logits(tokens)
    cached, cache = in_chunks(model, tokens, sizes)
    torch.testing.assert_close(cached, whole, rtol=1e-11, atol=1e-11)
    assert cache.length == LENGTH
    # What is compared depends on the past: the last token alone would give something else.
    assert (model.logits(tokens[:, -1:]) - whole[:, -1:]).abs().max() > 1e-3


@every_design
@torch.no_grad()
def test_in_fp32_and_without_grouped_heads(name: str) -> None:
    model, tokens = generic(name, shape_of(2, 32, 4, 4)).float(), tokens_of(3, LENGTH)
    cached, _ = in_chunks(model, tokens, [6, 1, 6])
    torch.testing.assert_close(cached, model.logits(tokens), rtol=1e-3, atol=1e-3)


@every_design
@torch.no_grad()
def test_a_looped_stack_has_one_pair_for_each_visit(name: str) -> None:
    model, tokens = generic(name, rounds=3), tokens_of(2, LENGTH)
    cached, cache = in_chunks(model, tokens, [4, 1, 8])
    torch.testing.assert_close(cached, model.logits(tokens), rtol=1e-11, atol=1e-11)
    assert sorted(cache.pairs) == [0, 2, 4, 6, 8, 10]
    shapes = {tuple(x.shape) for pair in cache.pairs.values() for x in pair}
    assert shapes == {(2, LENGTH, GROUPED.kv_heads, GROUPED.head_dim)}


@pytest.mark.parametrize("option", ["depthbench_rope", "post_norm"])
@torch.no_grad()
def test_options_that_change_what_slots_see(option: str) -> None:
    model, tokens = generic("moda", **{option: True}), tokens_of(2, LENGTH)
    cached, _ = in_chunks(model, tokens, [4, 1, 8])
    torch.testing.assert_close(cached, model.logits(tokens), rtol=1e-11, atol=1e-11)


@torch.no_grad()
def test_the_state_is_the_callers() -> None:
    """Two streams through one model do not see each other, and nothing stays behind."""
    model, tokens = generic("moda"), tokens_of(2, LENGTH)
    expected = model.logits(tokens)
    one, two = KeyValueCache(), KeyValueCache()
    for t in range(LENGTH):
        x = model.head(model(tokens[:1, t : t + 1], one))
        y = model.head(model(tokens[1:, t : t + 1], two))
        torch.testing.assert_close(torch.cat((x, y)), expected[:, t : t + 1], rtol=1e-11, atol=0)
    torch.testing.assert_close(model.logits(tokens), expected, rtol=0, atol=0)


@every_design
@torch.no_grad()
def test_greedy_generation_is_that_of_whole_forwards(name: str) -> None:
    model, prompt = generic(name), tokens_of(2, 4)
    tokens = prompt
    for _ in range(9):
        tokens = torch.cat((tokens, model.logits(tokens)[:, -1:].argmax(-1)), 1)
    assert generate(model, prompt, 9) == tokens[:, 4:].tolist()


def test_a_row_stops_by_itself_and_keeps_what_stopped_it() -> None:
    model, prompt = generic("hc"), tokens_of(3, 4)
    whole = generate(model, prompt, 12)
    marks = [row[n] for row, n in zip(whole, (2, 5, 11), strict=True)]
    stopped = generate(model, prompt, 12, lambda row: row[-1] in marks)
    for row, all_of_it in zip(stopped, whole, strict=True):
        first = next(n for n, token in enumerate(all_of_it) if token in marks)
        assert row == all_of_it[: first + 1]
    assert generate(model, prompt, 0) == [[], [], []]


def test_generation_ends_with_its_last_open_row(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = generic("pre-ln"), []
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda *a: calls.append(a[0].shape[1]) or forward(*a))
    generate(model, tokens_of(2, 4), 100, lambda row: len(row) == 3)
    assert calls == [4, 1, 1]


def test_sampling_follows_the_probabilities_and_the_seed() -> None:
    model, prompt = generic("pre-ln"), tokens_of(1, 4).expand(4000, 4)
    with torch.no_grad():
        logits = model.logits(prompt[:1])[0, -1] / 2.0
    p = torch.softmax(logits, 0)
    drawn = generate(model, prompt, 1, temperature=2.0, seed=5)
    counts = torch.bincount(torch.tensor(drawn).flatten(), minlength=VOCAB) / 4000
    assert (counts - p).abs().max() < 5 * (p * (1 - p) / 4000).sqrt().max()
    assert generate(model, prompt[:9], 5, temperature=2.0, seed=5) == generate(
        model, prompt[:9], 5, temperature=2.0, seed=5
    )
    assert drawn != generate(model, prompt, 1, temperature=2.0, seed=6)
