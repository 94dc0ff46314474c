"""Teacher-forced negative log-likelihood of targets, in batches of like length."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from depthbench.domains.encoding import Fitted, Window
from depthbench.model.decoder import LanguageModel
from depthbench.model.loss import token_nll

TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 65536}


class Batch(NamedTuple):
    """Windows of like length: inputs and what follows them, padded on the right, (B, T).

    `owner_B` is the sequence each window belongs to; `scored_BT` is true on its target tokens.
    """

    owner_B: list[int]
    tokens_BT: Tensor
    targets_BT: Tensor
    scored_BT: Tensor


def batches(
    sequences: Sequence[Fitted], length: int, tokens_per_batch: int, device: torch.device
) -> Iterator[Batch]:
    """Every window of every sequence once, longest first: what needs most memory comes first.

    Attention is causal, so that padding on the right changes nothing before it.
    """
    windows = [(owner, w) for owner, s in enumerate(sequences) for w in s.windows(length)]
    windows.sort(key=lambda pair: -len(pair[1].ids))
    start = 0
    while start < len(windows):
        T = len(windows[start][1].ids) - 1
        end = start + max(1, tokens_per_batch // T)
        yield _padded(windows[start:end], T, device)
        start = end


@torch.no_grad()
def score(
    model: LanguageModel,
    sequences: Sequence[Fitted],
    length: int,
    *,
    tokens_per_batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Nats of each sequence's target, summed over its tokens in fp64, [num_sequences].

    `length` is what the sequences were fitted to. The batch size changes no value beyond rounding.
    `progress` is told the target tokens scored and all there are.
    """
    device = model.embedding.weight.device
    size = tokens_per_batch or TOKENS_PER_BATCH.get(device.type, TOKENS_PER_BATCH["cpu"])
    nats, done = np.zeros(len(sequences)), 0
    total = sum(sequence.num_target for sequence in sequences)
    for batch in batches(sequences, length, size, device):
        # The head is half the work of a small model, and no prompt needs it.
        scored = batch.scored_BT
        x_ND = model(batch.tokens_BT)[scored]
        nll_N = token_nll(x_ND, model.head.weight, batch.targets_BT[scored]).double()
        owner_N = np.repeat(batch.owner_B, scored.sum(1).tolist())
        nats += np.bincount(owner_N, nll_N.cpu().numpy(), len(sequences))
        done += len(owner_N)
        if progress:
            progress(done, total)
    return nats


def _padded(windows: Sequence[tuple[int, Window]], T: int, device: torch.device) -> Batch:
    ids_BS = torch.zeros(len(windows), T + 1, dtype=torch.int64)
    scored_BT = torch.zeros(len(windows), T, dtype=torch.bool)
    for row, (_, window) in enumerate(windows):
        end = len(window.ids)
        ids_BS[row, :end] = torch.tensor(window.ids)
        scored_BT[row, end - 1 - window.num_target : end - 1] = True
    ids_BS = ids_BS.to(device)
    owners = [owner for owner, _ in windows]
    return Batch(owners, ids_BS[:, :-1], ids_BS[:, 1:], scored_BT.to(device))
