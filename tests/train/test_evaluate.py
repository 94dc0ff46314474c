"""Validation against naive full-logits cross-entropy, and its arithmetic against closed forms."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from depthbench.config import CellConfig
from depthbench.data import Corpus
from depthbench.errors import InputError
from depthbench.model.decoder import Decoder, build_decoder
from depthbench.train import evaluate as module
from depthbench.train.evaluate import evaluate, windows_by_source
from depthbench.train.objective import alone

VOCAB = 300


@pytest.fixture(scope="module")
def config(make_config) -> CellConfig:
    return make_config(sequence_length=8, evaluation={"tokens": 240, "points": 1})


@pytest.fixture(scope="module")
def two_sources(corpus: Corpus) -> Corpus:
    """101 and 304 tokens; token t has t % 5 bytes, so that the end of text has none."""
    draw = np.random.default_rng(0)
    streams = {name: draw.integers(0, VOCAB, n) for name, n in (("prose", 304), ("code", 101))}
    token_bytes = (np.arange(VOCAB) % 5).astype(np.int32)
    return replace(corpus, validation=streams, token_bytes=token_bytes)


@pytest.fixture
def model(config) -> Decoder:
    return build_decoder(config.shape, VOCAB, config.design, config.norm_eps, seed=1)


def naive(model: Decoder, stream: np.ndarray, num: int, length: int) -> torch.Tensor:
    """NLL of targets 1 … num·length, from whole logits of one window at a time."""
    rows = []
    for start in range(0, num * length, length):
        ids = torch.from_numpy(np.array(stream[start : start + length + 1], dtype=np.int64))
        logits = model.logits(ids[None, :-1])[0]
        rows.append(F.cross_entropy(logits.double(), ids[1:], reduction="none"))
    return torch.cat(rows).detach()


def test_loss_and_bits_per_byte_are_those_of_naive_cross_entropy(
    model, two_sources, config
) -> None:
    measures = evaluate(alone(model, config), two_sources, config)
    # 240 tokens are 30 windows of 8, by length 304 : 101.
    num = {"prose": round(30 * 304 / 405), "code": round(30 * 101 / 405)}
    assert num == {"prose": 23, "code": 7}
    nll = {s: naive(model, two_sources.validation[s], n, 8) for s, n in num.items()}
    size = {
        s: sum(int(t) % 5 for t in two_sources.validation[s][1 : 8 * n + 1]) for s, n in num.items()
    }
    assert measures["tokens"] == 240
    assert measures["bytes"] == sum(size.values())
    every = torch.cat(list(nll.values()))
    assert measures["loss"] == pytest.approx(every.mean().item(), rel=1e-6)
    bits = every.sum().item() / log(2) / sum(size.values())
    assert measures["bits_per_byte"] == pytest.approx(bits, rel=1e-6)
    for source, values in nll.items():
        mean, total = values.mean().item(), values.sum().item()
        assert measures["loss_by_source"][source] == pytest.approx(mean, rel=1e-6)
        by_source = measures["bits_per_byte_by_source"][source]
        assert by_source == pytest.approx(total / log(2) / size[source], rel=1e-6)


def test_a_model_that_knows_nothing_scores_ln_v(model, two_sources, config) -> None:
    """Closed form: ln V nats a token, and ln V / ln 2 · tokens / bytes bits per byte."""
    with torch.no_grad():
        model.head.weight.zero_()
    for precision, rel in (("fp32", 1e-7), ("bf16", 1e-7)):
        cell = config.model_copy(update={"precision": precision})
        measures = evaluate(alone(model, cell), two_sources, cell)
        assert measures["loss"] == pytest.approx(log(VOCAB), rel=rel)
        bits = log(VOCAB) / log(2) * 240 / measures["bytes"]
        assert measures["bits_per_byte"] == pytest.approx(bits, rel=rel)
        assert set(measures["loss_by_source"]) == {"prose", "code"}
    exact = evaluate(alone(model.double(), config), two_sources, config)
    assert exact["loss"] == pytest.approx(log(VOCAB), rel=1e-14)


def test_every_target_is_scored_once(two_sources, config) -> None:
    windows = windows_by_source(two_sources, config)
    for source, (num, stream) in {
        "prose": (23, two_sources.validation["prose"]),
        "code": (7, two_sources.validation["code"]),
    }.items():
        assert windows[source].shape == (num, 9)
        assert windows[source][:, 1:].reshape(-1).tolist() == stream[1 : 8 * num + 1].tolist()
        assert windows[source][:, :-1].reshape(-1).tolist() == stream[: 8 * num].tolist()


@pytest.mark.parametrize(("tokens", "prose", "code"), [(1, 1, 1), (8, 1, 1), (10**6, 37, 12)])
def test_at_least_one_window_a_source_and_at_most_all(
    tokens, prose, code, two_sources, config
) -> None:
    """303 // 8 = 37 and 100 // 8 = 12 windows fit, the first token of a stream being no target."""
    config = config.model_copy(
        update={"evaluation": config.evaluation.model_copy(update={"tokens": tokens})}
    )
    windows = windows_by_source(two_sources, config)
    assert {s: len(w) for s, w in windows.items()} == {"prose": prose, "code": code}


@pytest.mark.parametrize("at_once", [1, 4, 23, 1000])
def test_the_number_of_windows_at_once_does_not_matter(
    at_once, model, two_sources, config, monkeypatch
) -> None:
    expected = evaluate(alone(model, config), two_sources, config)
    monkeypatch.setattr(module, "TOKENS_AT_ONCE", 1)
    config = config.model_copy(update={"micro_batch_size": at_once})
    found = evaluate(alone(model, config), two_sources, config)
    assert (found["tokens"], found["bytes"]) == (expected["tokens"], expected["bytes"])
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    assert found["loss_by_source"] == pytest.approx(expected["loss_by_source"], rel=1e-6)


@pytest.mark.parametrize("micro", [1, 2])
def test_no_more_windows_at_once_than_in_a_micro_batch(
    micro, model, two_sources, config, monkeypatch
) -> None:
    """The micro-batch is what the user sets for memory; below some tokens it does not matter."""
    monkeypatch.setattr(module, "TOKENS_AT_ONCE", 1)
    sizes = []

    def recording(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        sizes.append(len(tokens))
        return torch.zeros(targets.shape)

    monkeypatch.setattr(model, "token_nll", recording)
    evaluate(
        alone(model, config), two_sources, config.model_copy(update={"micro_batch_size": micro})
    )
    assert max(sizes) <= micro
    assert sum(sizes) == 30


def test_a_targets_likelihood_is_its_own(model, two_sources, config) -> None:
    """A token in a later window, or after the target, changes nothing before it."""
    before = evaluate(
        alone(model, config), replace(two_sources, validation=_first(two_sources, 17)), config
    )
    changed = {s: np.append(v[:17], (v[17:25] + 1) % VOCAB) for s, v in _all(two_sources)}
    after = evaluate(alone(model, config), replace(two_sources, validation=changed), config)
    for source in before["loss_by_source"]:
        nll = after["loss_by_source"][source] * 24 - before["loss_by_source"][source] * 16
        last = naive(model, changed[source], 3, 8)[16:].sum().item()
        assert nll == pytest.approx(last, rel=1e-5)


def _all(corpus: Corpus) -> list[tuple[str, np.ndarray]]:
    return list(corpus.validation.items())


def _first(corpus: Corpus, count: int) -> dict[str, np.ndarray]:
    return {source: stream[:count] for source, stream in corpus.validation.items()}


def test_evaluation_changes_nothing(model, two_sources, config) -> None:
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    state = torch.get_rng_state()
    evaluate(alone(model, config), two_sources, config)
    assert torch.equal(torch.get_rng_state(), state)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None


def test_a_stream_shorter_than_a_window_is_refused(two_sources, config) -> None:
    corpus = replace(two_sources, validation={**two_sources.validation, "code": np.arange(8)})
    with pytest.raises(InputError, match=r"code .*has 8 tokens.*sequence_length = 8"):
        windows_by_source(corpus, config)
    fits = replace(two_sources, validation={**two_sources.validation, "code": np.arange(9)})
    assert windows_by_source(fits, config)["code"].shape == (1, 9)
