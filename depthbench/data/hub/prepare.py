"""A corpus of the hub from beginning to end: list, estimate, tokenise shards, merge them."""

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from depthbench.data import files, tokenizer
from depthbench.data.build import Recipe, alone, build, fault_of
from depthbench.data.documents import draw
from depthbench.data.hub.estimate import Estimate, Sample, estimate, sample
from depthbench.data.hub.gather import Gathering
from depthbench.data.hub.merge import Merged, Part
from depthbench.data.hub.options import HubCorpus, HubTokenizer
from depthbench.data.hub.repository import Listing, Shard, listing, on_hub, retried
from depthbench.data.hub.shards import DOWNLOADS, SCRATCH
from depthbench.data.layout import TOKENIZER
from depthbench.data.progress import Progress
from depthbench.errors import DataError, DepthbenchError, InputError

_CERTAIN = 0.9
"""Below this share of the tokens, the sample of one shard tells that the others are too few."""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _unheard(ahead: Estimate) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class HubAccess:
    """How a hub corpus is come by: nothing of it changes the corpus.

    `source` is a folder laid out like the repository and `tokenizer` a `tokenizer.json`, both
    instead of the network. Without `processes` there is one for each core. `on_estimate` is told
    what lies ahead before anything is fetched.
    """

    source: Path | None = None
    tokenizer: Path | None = None
    processes: int | None = None
    on_estimate: Callable[[Estimate], None] = _unheard


def prepare_hub(
    corpus: HubCorpus,
    folder: Path,
    work: Path,
    access: HubAccess,
    offline: bool,
    progress: Progress,
) -> None:
    """Makes `folder` the corpus. What is finished of it lies in `work` until it is whole.

    Raises `InputError` for what the repository or the disk cannot give, before anything of it is
    fetched, and `DataError` when the network fails for good.
    """
    if not fault_of(folder):
        return
    if offline and (access.source is None or access.tokenizer is None):
        raise InputError(
            f"{corpus.name} is not prepared, and offline it needs local copies of its repository "
            "and of its tokenizer: give --source and --tokenizer"
        )
    with alone(work.with_name(f"{work.name}.lock")):
        if not fault_of(folder):  # another process was faster
            return
        work.mkdir(exist_ok=True)
        for broken in (*work.glob(".*"), *work.glob(f"{DOWNLOADS}/**/*.incomplete")):
            broken.unlink()
        try:
            recipe = _gathered(corpus, work, access, progress)
        except DepthbenchError:
            if not any(work.glob("*.index")):  # nothing that another try would go on with
                shutil.rmtree(work)
            raise
        shutil.rmtree(folder, ignore_errors=True)  # of other shards, if the repository has changed
        build(recipe, folder, progress)
        shutil.rmtree(work)


def _gathered(corpus: HubCorpus, work: Path, access: HubAccess, progress: Progress) -> Recipe:
    """Tokenises the shards that are needed and do not stand."""
    progress("listing", 0, 1)
    found = listing(corpus, access.source)
    progress("listing", 1, 1)
    content = _tokenizer(corpus.options.tokenizer, access.tokenizer, work)
    train, validation = divided(corpus, found.shards)
    measured = _estimated(corpus, train, validation, work, access)
    gathering = Gathering(corpus, work, measured, access.processes or _cores(), progress)
    held_out = gathering.validation(validation)
    parts = gathering.train(train, held_out)
    return _recipe(corpus, found, content, parts, held_out)


def divided(corpus: HubCorpus, shards: Sequence[Shard]) -> tuple[list[Shard], list[Shard]]:
    """Shards for training, in the order in which they are taken, and those for validation.

    Both are chosen by a hash of the name, so that neither depends on how much is taken.
    """

    def drawn(purpose: str, shard: Shard) -> float:
        return draw(purpose, corpus.repository, shard.name)

    num = corpus.options.validation_shards
    if len(shards) <= num:
        raise InputError(
            f"{corpus.repository}, subset {corpus.subset}, has {len(shards)} shards, and "
            f"{num} of them are held out: none is left to train on"
        )
    by_hash = sorted(shards, key=partial(drawn, "validation"))
    return sorted(by_hash[num:], key=partial(drawn, "train")), by_hash[:num]


def _tokenizer(wanted: HubTokenizer, given: Path | None, work: Path) -> bytes:
    """The tokenizer's file, checked, and laid into `work` for the processes to read."""

    def download() -> Path:
        from huggingface_hub import hf_hub_download

        place = work / DOWNLOADS
        return Path(
            hf_hub_download(wanted.repository, TOKENIZER, revision=wanted.revision, local_dir=place)
        )

    name = f"the tokenizer of {wanted.repository}"
    if given is not None and not given.is_file():
        raise InputError(f"{given} is no file: {name} is a tokenizer.json")
    content = (given or retried(f"downloading {name}", download)).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if wanted.sha256 and found != wanted.sha256:
        raise InputError(f"{name} has sha256 {found} instead of {wanted.sha256}")
    files.write(work / TOKENIZER, content)
    types = tokenizer.load(work / TOKENIZER).get_vocab_size()
    if types > wanted.vocab_size:
        raise InputError(f"{name} has {types} types, more than vocab_size = {wanted.vocab_size}")
    return content


def _estimated(
    corpus: HubCorpus,
    train: Sequence[Shard],
    validation: Sequence[Shard],
    work: Path,
    access: HubAccess,
) -> Sample:
    """Measures a sample, tells what lies ahead, and refuses what cannot be had."""
    first, encoder = train[0], tokenizer.load(work / TOKENIZER)
    measure = partial(sample, corpus, first, encoder, work / SCRATCH)
    found = retried(f"reading a sample of {first.name}", measure) if on_hub(first) else measure()
    ahead = estimate(corpus, train, validation, found, access.processes or _cores())
    access.on_estimate(ahead)
    if ahead.available_tokens < _CERTAIN * corpus.options.tokens:
        raise InputError(
            f"{corpus.name} is to have {corpus.options.tokens:,} tokens, and the shards of subset "
            f"{corpus.subset} that are left to train on have about {ahead.available_tokens:,.0f}: "
            "ask for fewer tokens or for a larger subset"
        )
    standing = sum(file.stat().st_size for file in work.rglob("*") if file.is_file())
    needed, free = max(0, ahead.disk_bytes - standing), shutil.disk_usage(work).free
    if free < needed:
        raise DataError(
            f"{corpus.name} needs {needed:,} bytes of disk, and {work} has {free:,} free: make "
            "room, ask for fewer tokens, or let DEPTHBENCH_CACHE name another place"
        )
    return found


def _recipe(
    corpus: HubCorpus,
    found: Listing,
    content: bytes,
    parts: Sequence[Part],
    held_out: Sequence[Part],
) -> Recipe:
    encoder = corpus.options.tokenizer
    return Recipe(
        name=corpus.name,
        origin=corpus.origin,
        fingerprint=corpus.fingerprint(),
        sources={
            corpus.repository: found.commit or "a local copy",
            encoder.repository: encoder.revision,
        }
        | {part.name: part.source_sha256 for part in (*parts, *held_out)},
        licences={corpus.name: corpus.licence} if corpus.licence else {},
        splits=lambda _, __: {
            "train": Merged(parts),
            f"validation/{corpus.name}": Merged(held_out),
        },
        tokenizer=content,
        padded_vocab=encoder.vocab_size,
    )
