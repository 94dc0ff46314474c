"""A cell as lm-eval's model: likelihoods and text against sums written out by hand."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from depthbench.harness.lm import CellLM
from depthbench.trained import TrainedCell
from tests.harness.kit import LENGTH

SHORT = [("a cell is", " a folder"), ("one command runs; who", "ever"), ("", " naïve 漢字")]


def requests(*arguments: tuple[Any, ...]) -> list[Any]:
    return [SimpleNamespace(args=each) for each in arguments]


@pytest.fixture(scope="module")
def lm(trained: TrainedCell) -> CellLM:
    return CellLM(trained)


def nats(lm: CellLM, ids: Sequence[int], num_target: int) -> tuple[float, bool]:
    """Log-likelihood of the last `num_target` ids after those before them, in float64."""
    model = lm.trained.model
    with torch.no_grad():
        logits = model.logits(torch.tensor([ids[:-1]]))[0].double()
    p = torch.log_softmax(logits, -1)[-num_target:]
    target = torch.tensor(ids[-num_target:])
    total = p[torch.arange(num_target), target].sum().item()
    return total, bool((p.argmax(-1) == target).all())


def test_a_pair_starts_after_one_mark(lm: CellLM) -> None:
    tokenizer = lm.trained.corpus.tokenizer()
    for (context, continuation), (found, greedy) in zip(
        SHORT, lm.loglikelihood(requests(*SHORT)), strict=True
    ):
        before = tokenizer.encode(context).ids
        whole = tokenizer.encode(context + continuation).ids
        apart = before + tokenizer.encode(continuation).ids
        ids = [0, *(whole if whole[: len(before)] == before else apart)]
        expected = nats(lm, ids, len(ids) - 1 - len(before))
        assert found == pytest.approx(expected[0], abs=1e-4)
        assert greedy == expected[1]


def test_greedy_is_what_generation_writes(lm: CellLM) -> None:
    stop = {"until": [], "max_gen_toks": 3, "do_sample": False}
    tokenizer = lm.trained.corpus.tokenizer()
    ids = [0, *tokenizer.encode("a cell is").ids]
    rows = []
    for _ in range(3):
        with torch.no_grad():
            rows.append(lm.trained.model.logits(torch.tensor([ids]))[0, -1].argmax().item())
        ids.append(rows[-1])
    assert 0 not in rows
    (text,) = lm.generate_until(requests(("a cell is", stop)))
    assert text == tokenizer.decode(rows)
    pair = ((), [*tokenizer.encode("a cell is").ids], rows)
    worse = ((), [*tokenizer.encode("a cell is").ids], [*rows[:2], rows[2] + 1])
    (_, greedy), (_, other) = lm._loglikelihood_tokens([pair, worse])
    assert (greedy, other) == (True, False)


def test_neighbours_in_a_batch_change_nothing(trained: TrainedCell) -> None:
    pairs = [*SHORT, ("of it " * 9, " a cell"), ("folder,", " that one command runs" * 3)]
    alone = [CellLM(trained).loglikelihood(requests(pair))[0] for pair in pairs]
    for size in (2, 64):
        together = CellLM(trained, batch_size=size).loglikelihood(requests(*pairs))
        assert [x for x, _ in together] == pytest.approx([x for x, _ in alone], abs=1e-5)


def test_a_long_prompt_loses_its_left_and_the_mark(lm: CellLM) -> None:
    context, continuation = "that one command runs " * 12, "a folder"
    tokenizer = lm.trained.corpus.tokenizer()
    target = tokenizer.encode(" a folder").ids
    before = tokenizer.encode(context.rstrip()).ids
    ids = [*before, *target][-(LENGTH + 1) :]
    assert len(before) > LENGTH
    (found,) = lm.loglikelihood(requests((context, continuation)))
    assert found[0] == pytest.approx(nats(lm, ids, len(target))[0], abs=1e-4)


def test_a_target_longer_than_the_context_is_scored_whole(lm: CellLM) -> None:
    """First window: a quarter of it from before; each later one sees a quarter again."""
    continuation = " that one command runs; whoever asked" * 8
    ids = lm.trained.corpus.tokenizer().encode(continuation).ids
    quarter = LENGTH // 4
    assert len(ids) > 3 * LENGTH
    seen, expected = [0, *ids], 0.0
    start, scored = 0, 1
    while scored < len(seen):
        window = seen[start : start + LENGTH + 1]
        expected += nats(lm, window, start + len(window) - scored)[0]
        scored = start + len(window)
        start = scored - quarter
    (found,) = lm.loglikelihood(requests(("", continuation)))
    assert found[0] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("repeats", [1, 5, 9])
def test_rolling_predicts_each_token_once(lm: CellLM, repeats: int) -> None:
    """As lm-eval's documentation draws it: disjoint windows, the last one with all its context."""
    text = "a cell is a folder, that one command runs; " * repeats
    ids = lm.trained.corpus.tokenizer().encode(text).ids
    expected, done = 0.0, 0
    while done < len(ids):
        end = min(done + LENGTH, len(ids))
        start = max(0, end - LENGTH)
        before = [0] if start == 0 else [ids[start - 1]]
        expected += nats(lm, [*before, *ids[start:end]], end - done)[0]
        done = end
    found = lm.loglikelihood_rolling(requests((text,), ("a cell",)))
    assert found[0] == pytest.approx(expected, abs=1e-3)
    assert len(found) == 2
    assert found[1] > found[0]


def test_generation_stops_before_the_stop_sequence(lm: CellLM) -> None:
    whole = {"until": [], "max_gen_toks": 12}
    contexts = ["a cell is", "whoever asked", "a cell is", "folder"]
    texts = lm.generate_until(requests(*((context, whole) for context in contexts)))
    assert texts[0] == texts[2]
    mark = texts[1][len(texts[1]) // 2]
    cut = lm.generate_until(requests(*((c, {**whole, "until": [mark]}) for c in contexts)))
    assert cut == [text.split(mark)[0] for text in texts]


def test_generation_stays_within_the_context(lm: CellLM, monkeypatch: Any) -> None:
    from depthbench.harness import lm as module

    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(
        module,
        "generate",
        lambda model, tokens, room, *_: calls.append((tokens.shape[1], room)) or [[1]],
    )
    long = "that one command runs " * 12
    lm.generate_until(requests((long, {"until": [], "max_gen_toks": 256})))
    lm.generate_until(requests((long, {"until": [], "max_gen_toks": 4})))
    assert calls == [(LENGTH // 2, LENGTH // 2), (LENGTH - 4, 4)]


def test_lm_evals_defaults_are_not_taken_for_wishes(cell: Any, trained: TrainedCell) -> None:
    """Its command line passes cuda:0 and a batch of one whether or not anybody said so."""
    lm = CellLM(str(cell), batch_size=1, device="cuda:0")
    assert lm.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert lm.tokens_per_batch == CellLM(trained).tokens_per_batch
    assert CellLM(trained, batch_size="16").tokens_per_batch == 16 * LENGTH
