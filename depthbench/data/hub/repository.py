"""The shards of a hub repository, or of a local copy of one: which there are, and having one."""

import errno
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from depthbench.data import files
from depthbench.data.hub.options import HubCorpus
from depthbench.errors import DataError, DepthbenchError, InputError

T = TypeVar("T")

WAITS = (1, 4, 16, 64)
"""Seconds between the attempts at one thing over the network."""
_ON_HUB = re.compile(r"hf://datasets/(?P<repository>[^@]+)@(?P<commit>[^/]+)/(?P<name>.+)")
_PATHS_AT_ONCE = 100
CARD = "README.md"


@dataclass(frozen=True)
class Shard:
    """One file of a repository. `name` is its path there, `location` what `datasets` reads it by.

    `sha256` is empty where only reading the file would tell.
    """

    name: str
    location: str
    size: int
    sha256: str = ""


@dataclass(frozen=True)
class Listing:
    """The shards of a corpus by name, and the commit they are of; of a local copy it is unknown."""

    shards: tuple[Shard, ...]
    commit: str = ""


def listing(corpus: HubCorpus, source: Path | None) -> Listing:
    """What `corpus` consists of in the local copy `source`, or on the hub.

    The repository's card says which files belong to a subset. A copy may hold only these. Raises
    `InputError` for a subset or split that is not there, and `DataError` when the hub does not
    answer.
    """
    if source is None:
        return retried(f"listing {corpus.repository}", lambda: _on_hub(corpus))
    if not source.is_dir():
        raise InputError(f"{source} is no folder: a local copy is laid out as {corpus.repository}")
    root = source.resolve()
    card = root / CARD
    paths = [Path(file) for file in _files(corpus, str(root), card if card.is_file() else None)]
    return Listing(tuple(Shard(str(p.relative_to(root)), str(p), p.stat().st_size) for p in paths))


def _on_hub(corpus: HubCorpus) -> Listing:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    from huggingface_hub.hf_api import RepoFile

    repository, api = corpus.repository, HfApi()
    commit = api.dataset_info(repository, revision=corpus.revision).sha
    card = None
    try:
        card = Path(hf_hub_download(repository, CARD, repo_type="dataset", revision=commit))
    except LocalEntryNotFoundError:  # what it raises when the network fails
        raise
    except EntryNotFoundError:
        pass  # a repository needs no card
    root = f"hf://datasets/{repository}@{commit}"
    locations = {file.removeprefix(f"{root}/"): file for file in _files(corpus, root, card)}
    names, shards = list(locations), []
    for start in range(0, len(names), _PATHS_AT_ONCE):
        infos = api.get_paths_info(
            *(repository, names[start : start + _PATHS_AT_ONCE]),
            repo_type="dataset",
            revision=commit,
        )
        shards += [
            Shard(i.path, locations[i.path], i.size, i.lfs.sha256 if i.lfs else "")
            for i in infos
            if isinstance(i, RepoFile)
        ]
    return Listing(tuple(shards), commit or corpus.revision)


def _files(corpus: HubCorpus, root: str, card: Path | None) -> list[str]:
    """Locations, all under `root`, of the files of the corpus's subset and split."""
    from datasets.data_files import DataFilesDict, get_data_patterns

    where, split = f"{root}, subset {corpus.subset}", corpus.options.split
    try:
        patterns = _patterns(corpus, card) or get_data_patterns(root)
        found = DataFilesDict.from_patterns(patterns, base_path=root)
    except FileNotFoundError as error:
        raise InputError(f"{where}: {error}") from None
    if split not in found:
        from residuals.errors import unknown  # imports torch: only once something is wrong

        raise InputError(f"{where}: {unknown('split', split, [str(name) for name in found])}")
    for location in found[split]:
        if not location.startswith(f"{root}/"):
            raise InputError(f"{where}: {location} is outside of the repository")
        if not location.endswith(".parquet"):
            raise InputError(
                f"{where}: {location} is not parquet, and nothing else is read from the hub"
            )
    return sorted(found[split])


def _patterns(corpus: HubCorpus, card: Path | None) -> dict[str, list[str]] | None:
    """Globs by split of the corpus's subset, or None where the card leaves it to the file names."""
    from datasets.data_files import sanitize_patterns
    from huggingface_hub import DatasetCard

    configs = (DatasetCard.load(card).data.configs if card else None) or []
    patterns = {config["config_name"]: config.get("data_files") for config in configs}
    default = [config["config_name"] for config in configs if config.get("default")]
    subset = corpus.subset or next(iter(default), "default")
    if subset in patterns:
        return dict(sanitize_patterns(patterns[subset])) if patterns[subset] else None
    if corpus.subset is None and not patterns:
        return None
    from residuals.errors import unknown  # imports torch: only once something is wrong

    raise InputError(f"{corpus.repository}: {unknown('subset', subset, list(patterns))}")


def on_hub(shard: Shard) -> bool:
    """Whether reading it needs the network."""
    return _ON_HUB.fullmatch(shard.location) is not None


def opened(shard: Shard) -> BinaryIO:
    """The shard, on the hub without downloading more of it than is read."""
    if on_hub(shard):
        from huggingface_hub import HfFileSystem

        return cast(BinaryIO, HfFileSystem().open(shard.location, "rb"))
    return open(shard.location, "rb")


@contextmanager
def at_hand(shard: Shard, folder: Path) -> Iterator[tuple[Path, str]]:
    """A local file with the content of `shard`, and its sha256; a download is deleted after use.

    A download that breaks off is gone on with for a while. One that is whole, but was not used to
    its end, stays in `folder` and is not fetched again. Raises `DataError` if the hub cannot be
    reached or the content is not what it lists.
    """
    path = Path(shard.location)
    if on_hub(shard):
        path = retried(f"downloading {shard.name}", lambda: _download(shard, folder))
    found = files.sha256(path)
    if shard.sha256 and found != shard.sha256:
        if on_hub(shard):
            path.unlink()
        raise DataError(
            f"{path} has sha256 {found} instead of {shard.sha256}: run the same command again"
        )
    yield path, found
    if on_hub(shard):
        path.unlink()


def _download(shard: Shard, folder: Path) -> Path:
    from huggingface_hub import hf_hub_download

    place = _ON_HUB.fullmatch(shard.location)
    assert place is not None, "only what is on the hub is downloaded"
    return Path(
        hf_hub_download(
            *(place["repository"], place["name"]),
            repo_type="dataset",
            revision=place["commit"],
            local_dir=folder,
        )
    )


def retried(what: str, attempt: Callable[[], T]) -> T:
    """What `attempt` returns, tried again after each of `WAITS` when the network fails it.

    What would fail the same way again, a repository that is not there, a damaged file or a full
    disk, is not.
    """
    for wait in (*WAITS, None):
        try:
            return attempt()
        except DepthbenchError:
            raise
        except Exception as error:  # of whichever network and file layers are below
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            if _lasting(error):
                raise DataError(f"{what}: {reason}") from error
            if wait is None:
                raise DataError(
                    f"{what} failed {len(WAITS) + 1} times, lastly with: {reason}. Run the same "
                    "command again once the network is there: it goes on where it was"
                ) from error
            logging.getLogger(__name__).warning("%s: %s; again in %d s", what, reason, wait)
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _lasting(error: Exception) -> bool:
    import datasets
    from huggingface_hub import errors

    gone = (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.EntryNotFoundError,
        errors.OfflineModeIsEnabled,
        datasets.exceptions.DatasetNotFoundError,
        ValueError,
    )
    # what it raises when the network fails, too, and nothing lies in its cache
    return isinstance(error, gone) and not isinstance(error, errors.LocalEntryNotFoundError)
