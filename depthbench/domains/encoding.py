"""How a prompt and its target become tokens: the one rule that every road to a number uses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Window(NamedTuple):
    """One forward pass: the model sees `ids[:-1]`; the last `num_target` of `ids` are scored."""

    ids: list[int]
    num_target: int


@dataclass(frozen=True)
class Fitted:
    """A sequence as it is scored: the last `num_target` of `ids` are the target.

    `prompt_cut`: tokens dropped from the left of the prompt. `target_cut`: the target is longer
    than one window, so `windows` are several; none of its tokens is lost.
    """

    ids: list[int]
    num_target: int
    prompt_cut: int
    target_cut: bool

    def windows(self, length: int) -> list[Window]:
        """Windows of at most `length` inputs in which every target token is scored exactly once.

        All but the first begin with the quarter window that precedes what they score.
        """
        scored, windows = len(self.ids) - self.num_target, []
        start = 0
        while scored < len(self.ids):
            ids = self.ids[start : start + length + 1]
            windows.append(Window(ids, start + len(ids) - scored))
            scored = start + len(ids)
            start = scored - _kept(length)
        return windows


def encode_pair(
    tokenizer: "Tokenizer", context: str, continuation: str
) -> tuple[list[int], list[int]]:
    """Tokens of the context and of the continuation, neither with an end-of-text mark.

    As lm-eval's `TemplateLM._encode_pair`: blanks at the end of the context go to the continuation,
    both are encoded together and split where the context alone ends. Where a token would straddle
    the two, lm-eval loses or repeats characters; here the two are encoded apart instead. No token
    of a byte-level BPE straddles a continuation that starts with a blank.
    """
    bare = context.rstrip()
    continuation = context[len(bare) :] + continuation
    context_ids = _encode(tokenizer, bare) if bare else []
    whole_ids = _encode(tokenizer, bare + continuation)
    if whole_ids[: len(context_ids)] == context_ids:
        return context_ids, whole_ids[len(context_ids) :]
    return context_ids, _encode(tokenizer, continuation)


def fit(end_of_text: int, context_ids: list[int], target_ids: list[int], length: int) -> Fitted:
    """End-of-text, prompt and target for a model that sees `length` tokens.

    The left of the prompt goes, end-of-text first, until `length` inputs and the last target fit:
    lm-eval's rule. A target longer than the window keeps the last quarter window of the prompt and
    is scored in several windows.
    """
    prompt_ids = [end_of_text, *context_ids]
    target_cut = len(target_ids) > length
    room = _kept(length) if target_cut else length + 1 - len(target_ids)
    kept = prompt_ids[-room:]
    prompt_cut = len(context_ids) - min(len(kept), len(context_ids))
    return Fitted(kept + target_ids, len(target_ids), prompt_cut, target_cut)


def _kept(length: int) -> int:
    return max(1, length // 4)


def _encode(tokenizer: "Tokenizer", text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids
