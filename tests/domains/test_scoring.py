"""Likelihoods against a model read by hand, and against every way to batch them."""

import numpy as np
import pytest
import torch

from depthbench.domains.encoding import Fitted, fit
from depthbench.domains.scoring import score
from depthbench.model.decoder import Decoder

LENGTH = 16
MODELS = ["pre-ln", "hc", "moda", "block-attnres"]


def some_sequences() -> list[Fitted]:
    """Prompts of 0 to 20 tokens and targets of 1 to 40, in no order."""
    generator = np.random.default_rng(5)
    return [
        fit(
            0,
            generator.integers(1, 300, size=generator.integers(0, 21)).tolist(),
            generator.integers(1, 300, size=generator.integers(1, 41)).tolist(),
            LENGTH,
        )
        for _ in range(20)
    ]


def naive(model: Decoder, sequence: Fitted) -> float:
    """Each window alone, all logits, in fp64."""
    total = 0.0
    for ids, num_target in sequence.windows(LENGTH):
        logits_TV = model.logits(torch.tensor([ids[:-1]]))[0].double()
        log_p_TV = torch.log_softmax(logits_TV, -1)
        for t in range(len(ids) - 1 - num_target, len(ids) - 1):
            total -= log_p_TV[t, ids[t + 1]].item()
    return total


@pytest.mark.parametrize("design", MODELS)
def test_scores_are_those_of_each_window_alone(make_trained, design: str) -> None:
    model, sequences = make_trained(spread, design).model, some_sequences()
    expected = [naive(model, sequence) for sequence in sequences]
    np.testing.assert_allclose(score(model, sequences, LENGTH), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("design", MODELS)
def test_batch_size_changes_no_value(make_trained, design: str) -> None:
    model, sequences = make_trained(spread, design).model, some_sequences()
    alone = score(model, sequences, LENGTH, tokens_per_batch=1)
    for size in (37, 10**6):
        together = score(model, sequences, LENGTH, tokens_per_batch=size)
        per_token = (together - alone) / [s.num_target for s in sequences]
        assert np.abs(per_token).max() < 1e-5


def test_a_bigram_model_is_scored_by_its_table(make_trained) -> None:
    """With silent branches the logits follow from the last token alone."""
    model = make_trained(silence).model
    e = model.embedding.weight.double().numpy()
    gain = model.final_norm.gain.double().numpy()
    logits = (e / np.sqrt((e**2).mean(1, keepdims=True) + 1e-6) * gain) @ (
        model.head.weight.double().numpy().T
    )
    nll = np.log(np.exp(logits).sum(1, keepdims=True)) - logits
    long = list(range(40, 90))
    sequences = [
        fit(0, [7, 8], [9, 10], LENGTH),
        fit(0, [], [5], LENGTH),
        fit(0, [3], long, LENGTH),
    ]
    expected = [
        nll[8, 9] + nll[9, 10],
        nll[0, 5],
        nll[3, 40] + sum(nll[a, a + 1] for a in range(40, 89)),
    ]
    np.testing.assert_allclose(score(model, sequences, LENGTH), expected, rtol=1e-5)


def test_progress_ends_at_all_target_tokens(make_trained) -> None:
    told: list[tuple[int, int]] = []
    sequences = some_sequences()
    score(
        make_trained().model,
        sequences,
        LENGTH,
        tokens_per_batch=100,
        progress=lambda *at: told.append(at),
    )
    total = sum(sequence.num_target for sequence in sequences)
    assert told[-1] == (total, total)
    assert told == sorted(told)


def spread(model: torch.nn.Module) -> None:
    """Weights large enough that context and position matter."""
    for parameter in model.parameters():
        parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))


def silence(model: torch.nn.Module) -> None:
    spread(model)
    for name, parameter in model.named_parameters():
        if name.endswith(("out.weight", "down.weight")):
            parameter.zero_()
