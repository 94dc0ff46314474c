"""Opening the corpus that a cell's config pins by hash, wherever in the cache it lies."""

from pathlib import Path

from depthbench.config import CorpusRef
from depthbench.data.corpus import Corpus, open_corpus
from depthbench.data.prepare import default_cache
from depthbench.errors import DataError


def open_pinned(ref: CorpusRef, cache_dir: Path | None = None) -> Corpus:
    """The prepared corpus with `ref`'s name and hashes.

    Raises `DataError` if there is none, or if what is prepared under that name is something else.
    """
    cache = cache_dir or default_cache()
    others = []
    for header in sorted((cache / "corpora").glob("*/header.json")):
        try:
            corpus = open_corpus(header.parent, verify=False)
            if corpus.ref() == ref:
                return open_corpus(header.parent)
        except DataError as error:
            others.append(str(error))
            continue
        if corpus.name == ref.name:
            others.append(f"{header.parent} has the hash {corpus.hash}")
    found = "; ".join(others) or "nothing is prepared there"
    raise DataError(
        f"the cell needs corpus {ref.name} with hash {ref.hash} in {cache}, but {found}: "
        f"run `depthbench data prepare {ref.name}` with the version that planned the cell"
    )
