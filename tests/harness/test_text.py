"""Text after a prompt, for people."""

import pytest
import torch

from depthbench.errors import InputError
from depthbench.harness.text import continuation
from depthbench.trained import TrainedCell
from tests.harness.kit import LENGTH


@torch.no_grad()
def greedy(trained: TrainedCell, ids: list[int], num: int) -> list[int]:
    for _ in range(num):
        ids = [*ids, trained.model.logits(torch.tensor([ids]))[0, -1].argmax().item()]
    return ids[-num:]


def test_it_goes_on_from_the_mark_and_the_prompt(trained: TrainedCell) -> None:
    tokenizer = trained.corpus.tokenizer()
    new = greedy(trained, [0, *tokenizer.encode("a cell is").ids], 8)
    assert 0 not in new
    assert continuation(trained, "a cell is", 8) == tokenizer.decode(new)
    assert continuation(trained, "", 5) == tokenizer.decode(greedy(trained, [0], 5))


def test_a_long_prompt_keeps_its_right_end(trained: TrainedCell) -> None:
    tokenizer, prompt = trained.corpus.tokenizer(), "that one command runs " * 12
    ids = tokenizer.encode(prompt).ids[-(LENGTH - 6) :]
    assert continuation(trained, prompt, 6) == tokenizer.decode(greedy(trained, ids, 6))


def test_it_ends_with_the_document(trained: TrainedCell, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = trained.corpus.tokenizer()
    new = greedy(trained, [0, *tokenizer.encode("a cell is").ids], 8)
    head = trained.model.head.forward
    calls: list[int] = []

    def ends_at_the_fourth(x_BTD: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        logits = head(x_BTD).clone()
        if len(calls) == 4:
            logits[..., 0] = 1e9
        return logits

    monkeypatch.setattr(trained.model.head, "forward", ends_at_the_fourth)
    assert continuation(trained, "a cell is", 8) == tokenizer.decode(new[:3])
    assert len(calls) == 4


def test_sampling_is_repeatable(trained: TrainedCell) -> None:
    texts = [continuation(trained, "a cell", 12, 1.5, seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(("number", "temperature"), [(0, 0.0), (LENGTH, 0.0), (4, -1.0)])
def test_what_cannot_be_is_refused(trained: TrainedCell, number: int, temperature: float) -> None:
    with pytest.raises(InputError):
        continuation(trained, "a cell", number, temperature)
