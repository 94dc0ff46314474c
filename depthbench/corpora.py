"""The corpus that a suite names: what is known of it before it is prepared, and preparing it."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from depthbench.config import CorpusRef
from depthbench.data import LocalOptions, known_corpora, locate, open_corpus, prepare
from depthbench.data.manifest import pypi_text
from depthbench.data.pinned import open_pinned
from depthbench.data.progress import Progress
from depthbench.errors import DataError

UNPREPARED = "unprepared"


def prepared_ref(source: str, local: LocalOptions) -> CorpusRef | None:
    """The corpus in the cache, or None. Raises `InputError` for an unknown name."""
    try:
        return open_corpus(locate(source, local=local), verify=False).ref()
    except DataError:
        return None


def declared_ref(source: str, local: LocalOptions) -> CorpusRef:
    """What the corpus will be once prepared; of local text the hashes are not known before."""
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


def prepare_ref(source: str, local: LocalOptions, on_progress: Progress) -> CorpusRef:
    """Prepares the corpus where it is missing or damaged, and opens it."""
    return open_corpus(prepare(source, on_progress=on_progress, local=local)).ref()


def prepare_pinned(
    ref: CorpusRef, progress: Callable[[], AbstractContextManager[Progress]]
) -> None:
    """Sees that the corpus which `ref` pins lies in the cache, if it is one that is known by name.

    Raises `DataError` where it cannot be had: local text is prepared by hand.
    """
    try:
        open_pinned(ref)
    except DataError:
        if ref.name not in known_corpora():
            raise
        with progress() as tell:
            prepare(ref.name, on_progress=tell, local=LocalOptions())
        open_pinned(ref)
