import base64
import hashlib
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn
from zipfile import ZipFile

import pytest

from depthbench.data import Corpus, LocalOptions, open_corpus, prepare
from depthbench.data.wheels import Wheel


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError("a test reached for the network")

    for name in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def texts() -> list[str]:
    """Different documents of 20 to 80 words, some with characters of several bytes."""
    words = "the naïve 漢字 of depth and width is a 🙂 question that, in 1905, nobody asked".split()
    return [
        f"Document {n}.\n" + " ".join(words[(n * k + k) % len(words)] for k in range(20 + n % 61))
        for n in range(400)
    ]


@pytest.fixture
def jsonl(tmp_path: Path, texts: list[str]) -> Path:
    path = tmp_path / "tiny.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def options() -> LocalOptions:
    return LocalOptions(vocab_size=320, validation_share=0.1)


@pytest.fixture
def corpus(jsonl: Path, cache: Path, options: LocalOptions) -> Corpus:
    return open_corpus(prepare(jsonl, cache, local=options))


@pytest.fixture(scope="session")
def make_wheel() -> Callable[[Path, str, Mapping[str, str]], Wheel]:
    """Writes an installable wheel, version 1.0, with the given members, and pins it."""

    def make(folder: Path, project: str, members: Mapping[str, str]) -> Wheel:
        stem = project.replace("-", "_")
        info = f"{stem}-1.0.dist-info"
        content = {
            **members,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
        }
        record = [f"{info}/RECORD,,"]
        for name, text in content.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
            record.append(f"{name},sha256={digest.rstrip('=')},{len(text.encode())}")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{stem}-1.0-py3-none-any.whl"
        with ZipFile(path, "w") as archive:
            for name, text in {**content, f"{info}/RECORD": "\n".join(record)}.items():
                archive.writestr(name, text)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return Wheel(project=project, version="1.0", file=path.name, sha256=digest)

    return make
