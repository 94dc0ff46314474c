"""From texts to a corpus on disk, stage by stage; a stage that stands is not done again."""

import fcntl
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from depthbench.data import encode, files, layout, tokenizer
from depthbench.data.corpus import open_corpus
from depthbench.data.encode import Stream
from depthbench.data.layout import FORMAT, HEADER, TOKENIZER, Header, Stages
from depthbench.data.progress import Progress
from depthbench.errors import DataError, DepthbenchError

STAGES, READING = "stages.json", "reading"

Splits = dict[str, Sequence[str] | Stream]


@dataclass(frozen=True)
class Recipe:
    """How a corpus comes about. `splits` reads the texts; it may leave files in the given folder.

    `origin` is what the user gives to prepare it again: a known name, or a path.
    `tokenizer` is the content of a tokenizer file; without one a tokenizer of at most `vocab_size`
    types is trained on the training split. `padded_vocab` is the vocabulary that models get where
    it is larger than the tokenizer's.
    """

    name: str
    origin: str
    fingerprint: str
    sources: dict[str, str]
    splits: Callable[[Path, Progress], Splits]
    licences: dict[str, str] = field(default_factory=dict)
    tokenizer: bytes | None = None
    vocab_size: int = 4096
    padded_vocab: int = 0
    reference_hash: str = ""


def build(recipe: Recipe, folder: Path, progress: Progress) -> None:
    """Make `folder` a corpus, or whole again. One process works, others wait and find it done."""
    if not fault_of(folder):
        return
    with alone(folder.parent / ".lock"):
        folder.mkdir(parents=True, exist_ok=True)
        fault = fault_of(folder)
        if not fault:
            return
        if (folder / HEADER).exists():
            logging.getLogger(__name__).warning("%s", fault)
        for aside in folder.glob(".*"):
            aside.unlink()
        stages = _standing(folder)
        splits = _read(recipe, folder, progress)
        _keep(folder, stages)
        (folder / HEADER).unlink(missing_ok=True)  # it would speak of files that are being replaced
        encoder, stages = _with_tokenizer(recipe, folder, stages, splits["train"], progress)
        stages = _with_arrays(recipe, folder, stages, encoder, splits, progress)
        _write_header(recipe, folder, stages, encoder)
        (folder / STAGES).unlink(missing_ok=True)
        shutil.rmtree(folder / READING, ignore_errors=True)


def fault_of(folder: Path) -> str:
    """Why the folder is not a corpus, or nothing."""
    try:
        open_corpus(folder)
    except DataError as error:
        return str(error)
    return ""


def _standing(folder: Path) -> Stages:
    """The stages of an earlier run whose files are as it left them."""
    for file, model in ((HEADER, Header), (STAGES, Stages)):
        try:
            stages = model.model_validate(json.loads((folder / file).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
        bad = dict(layout.damaged(folder, stages, verify=True))
        arrays = {name: array for name, array in stages.arrays.items() if array.file not in bad}
        return Stages(tokenizer_hash=stages.tokenizer_hash, arrays=arrays)
    return Stages(tokenizer_hash="", arrays={})


def _read(recipe: Recipe, folder: Path, progress: Progress) -> Splits:
    try:
        return recipe.splits(folder / READING, progress)
    except DepthbenchError:
        shutil.rmtree(folder / READING, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()
        raise


def _with_tokenizer(
    recipe: Recipe, folder: Path, stages: Stages, texts: Sequence[str] | Stream, progress: Progress
) -> tuple[Tokenizer, Stages]:
    path = folder / TOKENIZER
    if not path.is_file() or files.sha256(path) != stages.tokenizer_hash:
        progress("tokenizer", 0, 1)
        content = recipe.tokenizer
        if content is None:
            assert not isinstance(texts, Stream), "tokens come with the tokenizer that made them"
            stream = (text for batch in encode.in_batches(texts) for text in batch)
            trained = tokenizer.train(stream, recipe.vocab_size)
            content = tokenizer.serialise(trained)
        files.write(path, content)
        found = hashlib.sha256(content).hexdigest()
        if found != stages.tokenizer_hash:  # arrays of another tokenizer are of no use
            stages = Stages(tokenizer_hash=found, arrays={})
        _keep(folder, stages)
    progress("tokenizer", 1, 1)
    return tokenizer.load(path), stages


def _with_arrays(
    recipe: Recipe,
    folder: Path,
    stages: Stages,
    encoder: Tokenizer,
    splits: Splits,
    progress: Progress,
) -> Stages:
    done, total = 0, sum(map(len, splits.values()))

    def batch_written(texts_of_split: int) -> None:
        progress("tokens", done + texts_of_split, total)

    arrays = dict(stages.arrays)
    if "token_bytes" not in arrays:
        arrays["token_bytes"] = encode.write_token_bytes(
            folder, encoder, _vocab_size(recipe, encoder)
        )
    for name, texts in splits.items():
        if name not in arrays:
            arrays[name] = encode.write_stream(folder, name, texts, encoder, batch_written)
            stages = Stages(tokenizer_hash=stages.tokenizer_hash, arrays=arrays)
            _keep(folder, stages)
        done += len(texts)
        progress("tokens", done, total)
    return stages


def _write_header(recipe: Recipe, folder: Path, stages: Stages, encoder: Tokenizer) -> None:
    validation = {
        name: np.memmap(folder / array.file, dtype=array.dtype, mode="r")
        for name, array in stages.arrays.items()
        if name.startswith("validation/")
    }
    vocab_size = _vocab_size(recipe, encoder)
    header = Header(
        **stages.model_dump(),
        format=FORMAT,
        name=recipe.name,
        origin=recipe.origin,
        hash=layout.content_hash(stages),
        recipe=recipe.fingerprint,
        sources=recipe.sources,
        licences=recipe.licences,
        vocab_size=vocab_size,
        end_of_text=tokenizer.end_of_text(encoder),
        unigram_entropy=encode.unigram_entropy(validation, vocab_size),
    )
    files.write(folder / HEADER, _json(header))
    if recipe.reference_hash and header.hash != recipe.reference_hash:
        logging.getLogger(__name__).warning(
            "corpus %s was prepared with hash %s, and published results used %s: they cannot be "
            "ranked together. Install the versions in constraints.txt and prepare it again.",
            *(recipe.name, header.hash, recipe.reference_hash),
        )


def _vocab_size(recipe: Recipe, encoder: Tokenizer) -> int:
    return max(recipe.padded_vocab, encoder.get_vocab_size())


def _keep(folder: Path, stages: Stages) -> None:
    files.write(folder / STAGES, _json(stages))


def _json(model: Stages) -> bytes:
    return (json.dumps(model.model_dump(), indent=1, allow_nan=False) + "\n").encode()


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold the lock, which ends with the process."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
