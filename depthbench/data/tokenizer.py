"""Byte-level BPE: training it on a corpus, and what the trainer needs to know of it."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from depthbench.errors import DataError

END_OF_TEXT = "<|endoftext|>"


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE of `vocab_size` types, `END_OF_TEXT` (id 0) and the 256 bytes among them.

    The same texts give the same tokenizer, whatever the number of threads.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def serialise(tokenizer: Tokenizer) -> bytes:
    """The bytes of its file; the tokenizer's hash is theirs."""
    return (tokenizer.to_str(pretty=True) + "\n").encode()


def load(path: Path) -> Tokenizer:
    """The tokenizer at `path`, for encoding text in which `END_OF_TEXT` is text like any other."""
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # `tokenizers` raises nothing narrower
        raise DataError(f"{path} is not a tokenizer file: {error}") from None
    tokenizer.encode_special_tokens = True
    return tokenizer


def end_of_text(tokenizer: Tokenizer) -> int:
    """Id of the mark that ends a document."""
    found = tokenizer.token_to_id(END_OF_TEXT)
    if found is None:
        raise DataError(f"the tokenizer has no {END_OF_TEXT} token to end documents with")
    return int(found)


def token_bytes(tokenizer: Tokenizer) -> NDArray[np.int32]:
    """UTF-8 bytes of each token, [vocab]; 0 for special tokens.

    Byte-level tokens are spelled with one character per byte, so that a token which is part of a
    character has a length too, and the lengths over a text add up to its bytes.
    """
    sizes = np.zeros(tokenizer.get_vocab_size(), dtype=np.int32)
    for token, number in tokenizer.get_vocab().items():
        sizes[number] = len(token)
    for number, added in tokenizer.get_added_tokens_decoder().items():
        sizes[number] = 0 if added.special else len(added.content.encode())
    return sizes
