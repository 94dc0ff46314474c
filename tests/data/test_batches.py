from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from depthbench.data import Corpus, batch, num_windows
from depthbench.data.batches import _order
from depthbench.errors import InputError


@pytest.fixture
def counting(corpus: Corpus) -> Corpus:
    """A corpus whose token at place n is n: 100 windows of 10, and 5 tokens too few for another."""
    return replace(corpus, train=np.arange(1005, dtype=np.uint16))


def starts(corpus: Corpus, seed: int, steps: range, batch_size: int = 8) -> list[int]:
    rows = [batch(corpus, seed, step, batch_size, 10) for step in steps]
    return [int(start) for row in rows for start in row[:, 0]]


def test_a_row_is_a_window_and_its_last_target(counting: Corpus) -> None:
    rows = batch(counting, 0, 3, 8, 10)
    assert rows.shape == (8, 11)
    assert rows.dtype == np.int64
    assert (rows == rows[:, :1] + np.arange(11)).all()
    assert (rows[:, 0] % 10 == 0).all()


def test_every_epoch_has_each_window_once_in_its_own_order(counting: Corpus) -> None:
    assert num_windows(counting, 10) == 100
    seen = starts(counting, 1, range(25))  # 200 rows: two epochs, the border within step 12
    first, second = seen[:100], seen[100:]
    assert sorted(first) == sorted(second) == list(range(0, 1000, 10))
    assert first != second
    assert first != sorted(first)


def test_batch_is_a_pure_function_of_hash_seed_and_step(counting: Corpus) -> None:
    wanted = batch(counting, 5, 17, 8, 10)
    for other in (0, 40, 3):
        batch(counting, 6, other, 8, 10)
    _order.cache_clear()
    assert (batch(counting, 5, 17, 8, 10) == wanted).all()
    assert (batch(counting, 6, 17, 8, 10) != wanted).any()
    other_hash = replace(counting, header=counting.header.model_copy(update={"hash": "ab" * 32}))
    assert (batch(other_hash, 5, 17, 8, 10) != wanted).any()


def test_batch_size_does_not_change_the_order(counting: Corpus) -> None:
    assert starts(counting, 2, range(20), 5) == starts(counting, 2, range(5), 20)


def test_first_places_are_uniform_over_seeds(counting: Corpus) -> None:
    firsts = Counter(starts(counting, seed, range(1), 1)[0] // 100 for seed in range(500))
    assert len(firsts) == 10
    assert max(firsts.values()) < 100  # 50 are expected; 100 is seven deviations away


def test_a_corpus_smaller_than_a_batch_is_refused(counting: Corpus) -> None:
    assert len(batch(counting, 0, 0, 100, 10)) == 100
    with pytest.raises(
        InputError, match="has 100 windows of 10 tokens, fewer than one batch of 101"
    ):
        batch(counting, 0, 0, 101, 10)
    with pytest.raises(InputError, match="has 0 windows"):
        batch(counting, 0, 0, 1, 1005)


def test_the_last_target_needs_a_token(counting: Corpus) -> None:
    assert num_windows(replace(counting, train=np.arange(1001)), 10) == 100
    assert num_windows(replace(counting, train=np.arange(1000)), 10) == 99
