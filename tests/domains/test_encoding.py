"""The tokens of prompt and target, and the windows they are scored in."""

from typing import Any

import pytest

from depthbench.data import Corpus
from depthbench.domains.encoding import encode_pair, fit

BLANK_AT_THE_JOIN = [
    ("Question: how far?\nAnswer:", " a narrow stack"),
    ("def depth(width):\n", "    return width\n"),
    ("the naïve 漢字 \n\n", "of depth"),
    ("", "a question"),
    ("depth", "\n\nof  a stack"),
]


@pytest.mark.parametrize(
    ("context", "continuation"), [*BLANK_AT_THE_JOIN, ("dep", "th of wi"), ("t", "he row")]
)
def test_the_target_is_all_of_its_text_and_nothing_else(
    corpus: Corpus, context: str, continuation: str
) -> None:
    tokenizer = corpus.tokenizer()
    context_ids, target_ids = encode_pair(tokenizer, context, continuation)
    blanks = context[len(context.rstrip()) :]
    assert tokenizer.decode(context_ids) == context.rstrip()
    assert tokenizer.decode(target_ids) == blanks + continuation


def test_a_token_across_the_join_is_not_lost(corpus: Corpus) -> None:
    """`th` is one token: what the joint encoding has beyond that of `t` is nothing."""
    tokenizer = corpus.tokenizer()
    assert len(tokenizer.encode("th").ids) == len(tokenizer.encode("t").ids) == 1
    assert encode_pair(tokenizer, "t", "h") == (
        tokenizer.encode("t").ids,
        tokenizer.encode("h").ids,
    )


@pytest.mark.parametrize(("context", "continuation"), BLANK_AT_THE_JOIN)
def test_the_rule_is_that_of_lm_eval(corpus: Corpus, context: str, continuation: str) -> None:
    api = pytest.importorskip("lm_eval.api.model")
    tokenizer = corpus.tokenizer()

    class Theirs(api.TemplateLM):  # type: ignore[misc, name-defined]
        eot_token_id = 0
        _loglikelihood_tokens = loglikelihood_rolling = generate_until = None

        def tok_encode(self, string: str, **kwargs: Any) -> list[int]:
            return list(tokenizer.encode(string).ids)

    ours = encode_pair(tokenizer, context, continuation)
    if context:
        assert ours == Theirs()._encode_pair(context, continuation)
    else:
        assert ours == ([], tokenizer.encode(continuation).ids)


def test_what_fits_is_one_window_after_the_end_of_text() -> None:
    found = fit(0, [1, 2, 3], [4, 5], length=5)
    assert (found.ids, found.num_target) == ([0, 1, 2, 3, 4, 5], 2)
    assert (found.prompt_cut, found.target_cut) == (0, False)
    assert found.windows(5) == [([0, 1, 2, 3, 4, 5], 2)]


@pytest.mark.parametrize(
    ("length", "ids", "cut"),
    [(4, [1, 2, 3, 4, 5], 0), (3, [2, 3, 4, 5], 1), (2, [3, 4, 5], 2)],
)
def test_the_left_of_the_prompt_goes_first(length: int, ids: list[int], cut: int) -> None:
    """The end-of-text before it is not part of the prompt, and is not counted as cut."""
    found = fit(0, [1, 2, 3], [4, 5], length)
    assert (found.ids, found.prompt_cut, found.target_cut) == (ids, cut, False)


def test_a_target_of_just_the_window_keeps_one_token_before_it() -> None:
    found = fit(0, [1, 2], [*range(10, 18)], length=8)
    assert found.windows(8) == [([2, *range(10, 18)], 8)]
    assert fit(0, [], [*range(10, 18)], length=8).windows(8) == [([0, *range(10, 18)], 8)]


def test_a_long_target_is_scored_in_overlapping_windows() -> None:
    """Length 8: two tokens of context, so the first window scores 7, the others as many."""
    found = fit(0, [1, 2, 3], [*range(10, 27)], length=8)
    assert (found.num_target, found.prompt_cut, found.target_cut) == (17, 1, True)
    assert found.windows(8) == [
        ([2, 3, *range(10, 17)], 7),
        ([*range(15, 24)], 7),
        ([*range(22, 27)], 3),
    ]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 16])
@pytest.mark.parametrize("num_prompt", [0, 1, 5, 40])
def test_every_target_token_is_scored_once_in_order(length: int, num_prompt: int) -> None:
    for num_target in range(1, 60):
        target = [*range(100, 100 + num_target)]
        found = fit(0, [*range(1, num_prompt + 1)], target, length)
        windows = found.windows(length)
        assert [t for w in windows for t in w.ids[len(w.ids) - w.num_target :]] == target
        assert all(w.num_target < len(w.ids) <= length + 1 for w in windows)
        assert found.target_cut == (num_target > length) == (len(windows) > 1)
        assert len(found.ids) - num_target + found.prompt_cut in (num_prompt, num_prompt + 1)
