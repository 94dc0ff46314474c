"""The depth state of designs whose sublayers choose among everything written before them.

Flat, it is `keys_CD, v_0 … v_n, [partial], rows`: keys of all consumers in order of visits,
gathered once a forward; completed sources (B, T, D) and the running partial sum; rows, the logits
(B, T) of the completed sources for the next consumer, then for the one after it, and so on. The
logits of a source for all later consumers are one matrix product when it is completed.

So the next consumers' means over the sources so far are known, too, and one small matrix product a
token gives `AHEAD` of them for one reading of the sources. A consumer then reads its mean like one
source more, whose logit is log Σ exp of the logits that it covers. Such pairs, (1, B, T, D) and
(1, B, T, 1) for each of the next consumers, stand in the state after the last source they cover;
they only save time: a state without them means the same.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from residuals.probing import State
from residuals.products import normed_product
from residuals.slots import shared, weighted_sum
from residuals.together import softmax_and_total, weighted_sums

AHEAD = 16
FEWEST = 10  # with fewer sources it does not pay


class Sources(NamedTuple):
    """The state before a consumer reads: `rows` has one entry a remaining consumer."""

    eps: float
    keys_CD: Tensor
    completed: State
    partial: State
    rows: tuple[State, ...]
    ahead: State = ()
    num_covered: int = 0

    @classmethod
    def first(cls, keys_CD: Tensor, x_BTD: Tensor, eps: float) -> "Sources":
        """The embedding alone, before all consumers that there are keys for."""
        return cls(eps, keys_CD, (), (), ((),) * len(keys_CD)).completing(x_BTD)

    @classmethod
    def of(cls, state: State, num_consumers: int, eps: float) -> "Sources":
        """Read off the state itself: blocks that were left out have added no source."""
        ahead = [i for i, tensor in enumerate(state) if tensor.dim() == 4]
        wide = tuple(tensor for tensor in state if tensor.dim() == 3)
        first_row = 1 + len(wide) + len(ahead)
        num = (len(state) - first_row) // num_consumers
        rows = tuple(state[i : i + num] for i in range(first_row, len(state), num))
        found = cls(eps, state[0], wide[:num], wide[num:], rows)
        if not ahead:
            return found
        return found._replace(ahead=tuple(state[i] for i in ahead), num_covered=ahead[0] - 1)

    def flat(self) -> State:
        """The state."""
        rows = (row for consumer in self.rows for row in consumer)
        n = self.num_covered
        wide = (*self.completed[:n], *self.ahead, *self.completed[n:], *self.partial)
        return (self.keys_CD, *wide, *rows)

    def completing(self, total_BTD: Tensor) -> "Sources":
        """With one completed source more, and no partial sum."""
        total_BTD = shared(total_BTD)
        remaining_CD = self.keys_CD[len(self.keys_CD) - len(self.rows) :]
        added = normed_product(remaining_CD, total_BTD, self.eps).unbind(0)
        rows = tuple((*old, new) for old, new in zip(self.rows, added, strict=True))
        return self._replace(completed=(*self.completed, total_BTD), partial=(), rows=rows)

    def read(self) -> tuple[Tensor, Tensor, "Sources"]:
        """What the next consumer reads (B, T, D), its weights (S, B, T), and the state after it.

        Where its mean was taken ahead, the weights are of that mean and of what it does not cover.
        """
        n = self.num_covered
        logits, values = self.rows[0][n:], (*self.completed[n:], *self.partial)
        if self.partial:
            key_1D = self.keys_CD[len(self.keys_CD) - len(self.rows)].unsqueeze(0)
            logits = (*logits, *normed_product(key_1D, self.partial[0], self.eps).unbind(0))
        if self.ahead:
            logits = (self.ahead[1][0, :, :, 0], *logits)
            values = (self.ahead[0][0], *values)
        weights = torch.softmax(torch.stack(logits), 0)
        left = self.ahead[2:]
        after = self._replace(rows=self.rows[1:], ahead=left, num_covered=n if left else 0)
        return weighted_sum(weights, values), weights, after

    def looking_ahead(self) -> "Sources":
        """With the means of the next consumers, if there are none and it pays."""
        if self.ahead or len(self.completed) < FEWEST:
            return self
        logits_CSBT = torch.stack([torch.stack(row) for row in self.rows[:AHEAD]])
        weights_CSBT, total_C1BT = softmax_and_total(logits_CSBT)
        means = weighted_sums(weights_CSBT, self.completed).split(1)
        totals = total_C1BT.squeeze(1).unsqueeze(-1).split(1)
        ahead = tuple(x for pair in zip(means, totals, strict=True) for x in pair)
        return self._replace(ahead=ahead, num_covered=len(self.completed))

    def plain(self) -> "Sources":
        """Without means taken ahead, which hold only while what they were made of stays."""
        return self._replace(ahead=(), num_covered=0)
