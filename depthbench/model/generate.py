"""Continuing prompts token by token, with a cache."""

from collections.abc import Callable

import torch
from torch import Tensor

from depthbench.model.cache import KeyValueCache
from depthbench.model.decoder import LanguageModel
from residuals.norms import at_least_fp32

Stop = Callable[[list[int]], bool]


@torch.no_grad()
def generate(
    model: LanguageModel,
    prompt_BT: Tensor,
    max_new_tokens: int,
    stop: Stop | None = None,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[list[int]]:
    """What the model writes after each prompt; prompts of one batch have one length.

    A row ends after `max_new_tokens`, or with the token at which `stop(row)` holds. Temperature 0
    takes the likeliest token.
    """
    cache = KeyValueCache()
    generator = torch.Generator(prompt_BT.device).manual_seed(seed)
    rows: list[list[int]] = [[] for _ in prompt_BT]
    open_rows = set(range(len(rows)))
    tokens_BT = prompt_BT
    for _ in range(max_new_tokens):
        if not open_rows:
            break
        next_B = _choose(model.head(model(tokens_BT, cache)[:, -1]), temperature, generator)
        for b in sorted(open_rows):
            rows[b].append(int(next_B[b]))
            if stop is not None and stop(rows[b]):
                open_rows.remove(b)
        tokens_BT = next_B.unsqueeze(1)
    return rows


def _choose(logits_BV: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    if temperature == 0:
        return logits_BV.argmax(-1)
    p_BV = torch.softmax(at_least_fp32(logits_BV) / temperature, -1)
    return torch.multinomial(p_BV, 1, generator=generator).squeeze(1)
