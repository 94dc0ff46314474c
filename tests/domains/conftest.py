import gzip
import hashlib
import json
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from zipfile import ZipFile

import numpy as np
import pytest
import torch

from depthbench.config import CellConfig
from depthbench.data import Corpus, LocalOptions, open_corpus, prepare
from depthbench.data.wheels import Wheel
from depthbench.domains import definitions, sources
from depthbench.folder import CellFolder
from depthbench.model.decoder import build_decoder
from depthbench.trained import TrainedCell

LEADS = ["Ohm\n\nThe ohm is a unit.\n\nIt measures résistance.", "Elm\n\nElms are trees."]
MakeWheel = Callable[[Mapping[str, Sequence[Mapping[str, Any]]]], Path]
Edit = Callable[[torch.nn.Module], None]
MakeTrained = Callable[..., TrainedCell]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr(sources, "offline_unless_reachable", lambda: None)
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """300 token types, and a held-out stream of `LEADS` laid out as prepared corpora lay it out."""
    folder = tmp_path_factory.mktemp("corpus")
    words = "of depth and width the naïve question 漢字 is how far\n\n a narrow stack reads".split(
        " "
    )
    text = (
        {"text": " ".join(words[(n * k + k * k + n) % len(words)] for k in range(20 + n % 41))}
        for n in range(150)
    )
    (folder / "tiny.jsonl").write_text("".join(json.dumps(row) + "\n" for row in text))
    options = LocalOptions(vocab_size=300, validation_share=0.15)
    found = open_corpus(prepare(folder / "tiny.jsonl", folder / "cache", local=options))
    stream = [found.end_of_text]
    for lead in LEADS:
        stream += [*found.tokenizer().encode(lead).ids, found.end_of_text]
    return replace(found, held_out={"stem": np.array(stream, dtype=np.uint16)})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEPTHBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def make_wheel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> MakeWheel:
    """Puts a wheel of the given members into the cache and pins it as `questions`."""

    def make(members: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
        path = cache / "wheels" / "questions-1.0-py3-none-any.whl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with ZipFile(path, "w") as archive:
            for name, docs in members.items():
                lines = (json.dumps({"doc": doc}, ensure_ascii=False) + "\n" for doc in docs)
                archive.writestr(name, gzip.compress("".join(lines).encode()))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        pin = Wheel(project="questions", version="1.0", file=path.name, sha256=digest)
        monkeypatch.setattr(definitions, "_wheels", lambda: {"questions": pin})
        return path

    return make


@pytest.fixture
def make_trained(corpus: Corpus, tmp_path: Path) -> MakeTrained:
    """A cell as if trained: its model as initialised, then changed by `edit`."""

    def make(
        edit: Edit = lambda model: None, design: str = "pre-ln", length: int = 16
    ) -> TrainedCell:
        config = CellConfig.model_validate(
            {
                "suite": "unit",
                "ladder": "inline",
                "design": {"name": design, "version": 1},
                "shape": {"layers": 2, "d_model": 16, "ffn": 24, "heads": 2},
                "corpus": corpus.ref().model_dump(),
                "sequence_length": length,
                "batch_size": 4,
                "micro_batch_size": 4,
                "steps": 40,
                "optimizer": {"learning_rate": 0.01},
                "evaluation": {"tokens": 128},
                "norm_eps": 1e-6,
                "seed": 3,
            }
        )
        model = build_decoder(config.shape, corpus.vocab_size, config.design, 1e-6, config.seed)
        model.eval().requires_grad_(False)
        edit(model)
        folder = CellFolder(tmp_path / "cell")
        folder.path.mkdir(exist_ok=True)
        return TrainedCell(folder, config, model, corpus)

    return make
