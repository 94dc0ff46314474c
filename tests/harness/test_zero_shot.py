"""Zero-shot tasks: those whose data can be had are run, the others named."""

import time
from typing import Any, NoReturn

import datasets
import pytest
import torch
from huggingface_hub import constants

from depthbench.errors import InputError
from depthbench.harness import zero_shot as module
from depthbench.harness.zero_shot import TASKS, zero_shot
from depthbench.trained import TrainedCell

QUESTIONS = ["a cell is", "that one command runs", "whoever asked", "of it"]
CHOICES = ["a folder", "naïve questions", "one, that is 漢字"]


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def arc() -> Any:
    rows = [
        {
            "id": str(n),
            "question": question,
            "choices": {"text": CHOICES, "label": ["A", "B", "C"]},
            "answerKey": "ABC"[n % 3],
        }
        for n, question in enumerate(QUESTIONS)
    ]
    split = datasets.Dataset.from_list(rows)
    return datasets.DatasetDict({"train": split, "validation": split, "test": split})


def load_only_arc(path: str, **_: Any) -> Any:
    if path != "allenai/ai2_arc":
        raise ConnectionError(f"Couldn't reach {path}\nand a second line")
    return arc()


@torch.no_grad()
def right_answers(trained: TrainedCell, per_character: bool) -> list[bool]:
    tokenizer, right = trained.corpus.tokenizer(), []
    for n, question in enumerate(QUESTIONS):
        scores = []
        for choice in CHOICES:
            before = tokenizer.encode(f"Question: {question}\nAnswer:").ids
            target = tokenizer.encode(f" {choice}").ids
            ids = torch.tensor([[0, *before, *target]])[:, -25:]
            p = trained.model.logits(ids[:, :-1])[0].log_softmax(-1)
            score = p[range(-len(target), 0), target].sum().item()
            scores.append(score / len(choice) if per_character else score)
        right.append(scores.index(max(scores)) == n % 3)
    return right


def test_accuracy_of_what_can_be_had_and_reasons_for_the_rest(
    trained: TrainedCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", load_only_arc)
    found = zero_shot(trained)
    assert set(found["tasks"]) == {"arc_easy", "arc_challenge"}
    assert set(found["tasks"]) | set(found["unavailable"]) == set(TASKS)
    assert found["unavailable"]["piqa"] == "ConnectionError: Couldn't reach baber/piqa"
    right = right_answers(trained, per_character=False)
    p = sum(right) / 4
    entry = found["tasks"]["arc_easy"]
    assert entry["accuracy"] == p
    assert entry["normalised"] == sum(right_answers(trained, per_character=True)) / 4
    assert entry["standard_error"] == pytest.approx((p * (1 - p) / 3) ** 0.5)
    assert entry["items"] == 4
    told: list[tuple[str, int, int]] = []
    capped = zero_shot(trained, 2, lambda *at: told.append(at))
    assert told[-1] == ("zero-shot data", 7, 7)
    assert capped["limit"] == 2
    assert capped["tasks"]["arc_easy"]["items"] == 2
    assert capped["tasks"]["arc_easy"]["accuracy"] == sum(right[:2]) / 2


def test_offline_each_task_is_named_at_once(trained: TrainedCell, tmp_path: Any) -> None:
    start = time.monotonic()
    found = zero_shot(trained)
    assert time.monotonic() - start < 10
    assert found["tasks"] == {}
    assert list(found["unavailable"]) == list(TASKS)
    assert all("\n" not in reason for reason in found["unavailable"].values())


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def silent(request: Any, timeout: float) -> NoReturn:
        asked.append((request.full_url, timeout))
        raise TimeoutError

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(module, "urlopen", silent)
    with module._patience():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    assert asked == [(constants.ENDPOINT, module.PATIENCE)]


def test_a_limit_of_nothing_is_refused(trained: TrainedCell) -> None:
    with pytest.raises(InputError, match="limit = 0"):
        zero_shot(trained, limit=0)
