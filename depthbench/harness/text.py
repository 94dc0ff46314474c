"""What a trained cell writes after a prompt."""

import torch

from depthbench.domains.encoding import encode_pair
from depthbench.errors import InputError
from depthbench.model.generate import generate
from depthbench.trained import TrainedCell


def continuation(
    trained: TrainedCell,
    prompt: str,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    seed: int = 0,
) -> str:
    """Text after the prompt, up to the end of the document or `max_new_tokens`.

    Temperature 0 takes the likeliest token. A long prompt loses its left, so that all stays within
    the training context. Raises `InputError` if no prompt would fit, or for a temperature below 0.
    """
    context, mark = trained.config.sequence_length, trained.corpus.end_of_text
    if not 1 <= max_new_tokens < context:
        raise InputError(
            f"max_new_tokens = {max_new_tokens}: the cell was trained on {context} tokens at once, "
            f"so give 1 to {context - 1}"
        )
    if temperature < 0:
        raise InputError(f"temperature = {temperature}: give 0 or more")
    tokenizer, device = trained.corpus.tokenizer(), trained.model.embedding.weight.device
    ids = [mark, *encode_pair(tokenizer, "", prompt)[1]][-(context - max_new_tokens) :]
    tokens_BT = torch.tensor([ids], device=device)
    (row,) = generate(
        trained.model, tokens_BT, max_new_tokens, lambda new: new[-1] == mark, temperature, seed
    )
    text: str = tokenizer.decode([token for token in row if token != mark])
    return text
