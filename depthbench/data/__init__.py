"""Corpora: prepared once, by name or from local text, then read without the network."""

from depthbench.data.batches import batch, num_windows
from depthbench.data.corpus import Corpus, open_corpus
from depthbench.data.hub.options import HubOptions
from depthbench.data.hub.prepare import HubAccess
from depthbench.data.local import LocalOptions
from depthbench.data.prepare import default_cache, known_corpora, locate, prepare

__all__ = [
    "Corpus",
    "HubAccess",
    "HubOptions",
    "LocalOptions",
    "batch",
    "default_cache",
    "known_corpora",
    "locate",
    "num_windows",
    "open_corpus",
    "prepare",
]
