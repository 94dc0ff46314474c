"""Text of one's own: `txt`, `jsonl` or `parquet` files, read through the `datasets` library."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from depthbench.config import Frozen
from depthbench.data import files
from depthbench.data.build import Recipe, Splits
from depthbench.data.documents import cut, draw, normalise_code
from depthbench.data.layout import FORMAT
from depthbench.data.progress import Progress
from depthbench.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

KINDS = (".txt", ".jsonl", ".parquet")
FEW_DOCUMENTS = 100


class LocalOptions(Frozen):
    """How local text is read.

    A `txt` file is one document; a `jsonl` or `parquet` file has one in each row's column `text`.
    `tokenizer` is trained on the text itself (`own`, at most `vocab_size` types) or the committed
    one of `pypi-text`.
    """

    text: str = "text"
    validation_share: float = Field(default=0.05, gt=0, lt=1)
    max_characters: int = Field(default=4000, ge=1)
    tokenizer: Literal["own", "pypi-text"] = "own"
    vocab_size: int = Field(default=4096, ge=257)


def local_recipe(path: Path, options: LocalOptions, committed: bytes | None) -> Recipe:
    """How the corpus of the file or folder `path` is made.

    Documents go to validation by a hash of their text, so that no text is on both sides. When
    there are fewer than `FEW_DOCUMENTS`, each piece of `max_characters` is drawn by itself, since
    one long file could not be divided otherwise.
    """
    paths = _files(path)
    sources = {file.name if file == path else str(file.relative_to(path)): file for file in paths}
    hashes = {name: files.sha256(file) for name, file in sources.items()}
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.resolve().stem) or "local"
    tokenizer_hash = hashlib.sha256(committed or b"").hexdigest()
    content = json.dumps(
        [FORMAT, name, hashes, options.model_dump(), tokenizer_hash], sort_keys=True
    )
    fingerprint = hashlib.sha256(content.encode()).hexdigest()
    return Recipe(
        name=name,
        origin=str(path.resolve()),
        fingerprint=fingerprint,
        sources=hashes,
        splits=partial(_splits, name, paths, options, fingerprint),
        tokenizer=committed,
        vocab_size=options.vocab_size,
    )


def _files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    fitting = sorted(p for p in found if p.suffix in KINDS)
    kinds = sorted({p.suffix for p in fitting})
    if not fitting:
        raise InputError(f"{path} has no text to train on: give {', '.join(KINDS)} files")
    if len(kinds) > 1:
        raise InputError(f"{path} has files of several kinds, {', '.join(kinds)}: keep one kind")
    return fitting


class _Pieces(Sequence[str]):
    """Rows of a dataset, read from disk when they are asked for."""

    def __init__(self, dataset: "Dataset", rows: NDArray[np.int64]) -> None:
        self._dataset, self._rows = dataset, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[self._rows[index]]["text"]


def _splits(
    name: str,
    paths: list[Path],
    options: LocalOptions,
    fingerprint: str,
    scratch: Path,
    progress: Progress,
) -> Splits:
    progress("documents", 0, 1)
    with _quiet():
        documents = _read(paths, options.text, scratch)
        pieces = documents.map(
            partial(_cut, options=options, by_piece=len(documents) < FEW_DOCUMENTS),
            batched=True,
            remove_columns=documents.column_names,
            new_fingerprint=fingerprint[:16],  # spares hashing the function, which pickles it
        )
    held_out = np.asarray(pieces["held_out"], dtype=bool)
    order = np.argsort(np.asarray(pieces["place"]), kind="stable")
    progress("documents", 1, 1)
    if not held_out.any() or held_out.all():
        side = "training" if held_out.all() else "validation"
        raise InputError(
            f"{name} has only {len(pieces)} pieces of text, and none was drawn for {side}: "
            f"give more text, or another validation_share than {options.validation_share}"
        )
    return {
        "train": _Pieces(pieces, order[~held_out[order]]),
        f"validation/{name}": _Pieces(pieces, order[held_out[order]]),
    }


def _cut(
    batch: dict[str, list[str | None]], options: LocalOptions, by_piece: bool
) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {"text": [], "held_out": [], "place": []}
    for text in batch["text"]:
        normalised = normalise_code(text or "")
        for piece in cut(normalised, options.max_characters):
            key = piece if by_piece else normalised
            rows["text"].append(piece)
            rows["held_out"].append(draw("validation", "", key) < options.validation_share)
            rows["place"].append(draw("order", "", piece))
    return rows


def _read(paths: list[Path], column: str, scratch: Path) -> "Dataset":
    """The documents of all files in one column named `text`, kept under `scratch`."""
    import datasets

    names, cache = [str(path) for path in paths], str(scratch)
    try:
        match paths[0].suffix:
            case ".txt":
                return datasets.Dataset.from_text(names, cache_dir=cache, sample_by="document")
            case ".jsonl":
                dataset = datasets.Dataset.from_json(names, cache_dir=cache)
            case _:
                dataset = datasets.Dataset.from_parquet(names, cache_dir=cache)
    except datasets.exceptions.DatasetGenerationError as error:
        raise InputError(f"cannot read {', '.join(names)}: {error.__cause__ or error}") from None
    if column not in dataset.column_names:
        from residuals.errors import unknown  # imports torch: only once something is wrong

        sentence = unknown("column", column, dataset.column_names)
        raise InputError(f"{names[0]}: {sentence}\nThe option `text` names the column.")
    kind = dataset.features[column].dtype
    if kind not in ("string", "large_string"):
        raise InputError(f"{names[0]}: column {column!r} holds {kind}, and text is needed")
    dataset = dataset.select_columns(column)
    return dataset if column == "text" else dataset.rename_column(column, "text")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars of `datasets`: the caller shows its own."""
    import datasets

    hidden = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not hidden:
            datasets.enable_progress_bars()
