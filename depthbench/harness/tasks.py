"""The domain sets as lm-eval tasks: what the YAML files under `evals/tasks/` call.

Documents come from the sets' own definitions, so that both roads score the same items. lm-eval
hands a model's arguments to its tasks as metadata; from them a task learns whose corpus and
tokenizer it is, which it needs to count target tokens.
"""

import logging
from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import depthbench.harness.lm  # noqa: F401  a task that is named by its path brings the model along
from depthbench.config import CellConfig
from depthbench.data.pinned import open_pinned
from depthbench.domains.definitions import chosen, definitions
from depthbench.domains.encoding import encode_pair
from depthbench.domains.measure import load
from depthbench.errors import DataError, InputError
from depthbench.export import CELL_FILE
from depthbench.folder import CellFolder, read_json

if TYPE_CHECKING:
    from datasets import Dataset

Ratio = tuple[float, int]


def documents(
    set_name: str,
    cell: str | None = None,
    pretrained: str | None = None,
    max_length: int | None = None,
    **_: Any,
) -> "dict[str, Dataset]":
    """lm-eval's `custom_dataset`: the items of a set with the tokens and bytes of their targets.

    `cell` and `pretrained` are arguments of the models `depthbench` and `hf`; the second is a
    folder that `depthbench export` wrote. Raises `DataError` if the set cannot be had.
    """
    from datasets import Dataset

    config = _config(cell, pretrained)
    corpus = open_pinned(config.corpus)
    loaded, unavailable = load(chosen(definitions(), (), (set_name,), hub=True), corpus)
    if unavailable:
        raise DataError(f"evaluation set {set_name}: {unavailable[set_name]}")
    tokenizer = corpus.tokenizer()
    items = loaded[0].items
    num_tokens = [len(encode_pair(tokenizer, *item)[1]) for item in items]
    columns = {
        "prompt": [item.prompt for item in items],
        "target": [item.target for item in items],
        "target_tokens": num_tokens,
        "target_bytes": [len(item.target.encode()) for item in items],
    }
    context = max_length or config.sequence_length
    num_long = sum(number > context for number in num_tokens)
    if cell is None and num_long:
        logging.getLogger(__name__).warning(
            "%d of %d targets of %s are longer than the model's context of %d, and lm-eval's hf "
            "model stops at the first of them: --model depthbench scores them in windows",
            *(num_long, len(items), set_name, context),
        )
    return {"test": Dataset.from_dict(columns)}


def process_results(doc: dict[str, Any], results: Sequence[tuple[float, bool]]) -> dict[str, Ratio]:
    """Nats and bits of the target, each over what it is to be divided by."""
    nats = -results[0][0]
    return {
        "nats_per_token": (nats, doc["target_tokens"]),
        "bits_per_byte": (nats / log(2), doc["target_bytes"]),
    }


def sum_over_sum(items: Sequence[Ratio]) -> float:
    """Aggregation: a long target weighs as much as it has tokens."""
    return sum(part for part, _ in items) / sum(whole for _, whole in items)


def _config(cell: str | None, pretrained: str | None) -> CellConfig:
    if cell is not None:
        return CellFolder(Path(cell)).config()
    if pretrained is None:
        raise InputError("a domain task needs --model_args cell=FOLDER, or pretrained=FOLDER")
    exported = Path(pretrained) / CELL_FILE
    if not exported.is_file():
        raise InputError(
            f"{exported} is missing: a domain task needs a folder that `depthbench export` wrote, "
            "whose corpus and tokenizer are known"
        )
    return CellConfig.model_validate(read_json(exported))
