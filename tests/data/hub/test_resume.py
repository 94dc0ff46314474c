"""Whatever stops a preparation, and however many processes do it: the same corpus in the end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from depthbench.data import Corpus, locate, open_corpus
from depthbench.data.hub import shards
from depthbench.data.hub.options import HubCorpus, hub_corpus
from depthbench.data.hub.prepare import divided
from depthbench.data.hub.repository import Shard
from depthbench.errors import DataError
from tests.data.hub.kit import SHARDS, Hub, running, write_shard

ROOT = Path(__file__).parents[3]
KILLED = """
import json, multiprocessing, os, signal, sys
from pathlib import Path
from typing import Any
from tests.data.hub.kit import Hub
from depthbench.data import prepare

def kill(stage, done, total):
    standing = list(cache.rglob("shards/*/*.json"))
    if stage == "training tokens" and len(standing) > 2:  # tokenizer, validation, and one more
        print(json.dumps([child.pid for child in multiprocessing.active_children()]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    source, tokenizer, cache = map(Path, sys.argv[1:])
    hub = Hub(source, tokenizer)
    access = hub.access(2)
    prepare("fineweb-edu", cache, on_progress=kill, hub=hub.options(), access=access)
"""


def fineweb(hub: Hub) -> HubCorpus:
    found = hub_corpus("fineweb-edu", hub.options())
    assert found is not None
    return found


def in_order(hub: Hub) -> list[str]:
    """Names of the training shards as they are taken."""
    train, _ = divided(fineweb(hub), [Shard(name, "", 0) for name in SHARDS])
    return [shard.name for shard in train]


def tokens_of(cache: Path, name: str) -> Path:
    (path,) = cache.glob(f"shards/*/{name.replace('/', '--')}.bin")
    return path


@pytest.mark.parametrize("processes", [2, 3])
def test_the_number_of_processes_changes_nothing(
    processes: int, whole: Corpus, hub: Hub, tmp_path: Path
) -> None:
    assert hub.prepare(tmp_path, processes).hash == whole.hash
    assert [path.name for path in (tmp_path / "shards").iterdir() if path.is_dir()] == []


def test_a_shard_that_cannot_be_read_to_its_end_is_done_again_and_it_alone(
    whole: Corpus, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = in_order(hub)
    read = shards.read_batches

    def failing(location: str, *rest: Any) -> Iterator[list[str | None]]:
        for number, batch in enumerate(read(location, *rest)):
            if location.endswith(second) and number == 3:
                raise OSError("the disk does not answer")
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(shards, "BATCH", 8)
        patch.setattr(shards, "read_batches", failing)
        with pytest.raises(DataError, match="the disk does not answer"):
            hub.prepare(tmp_path)
    with pytest.raises(DataError, match="is not a prepared corpus"):
        open_corpus(locate("fineweb-edu", tmp_path, hub=hub.options()))
    assert not list(tmp_path.glob(f"shards/*/*{Path(second).stem}*"))
    before = tokens_of(tmp_path, first).stat()
    os.link(tokens_of(tmp_path, first), tmp_path / "kept")  # the folder goes when all is done
    assert hub.prepare(tmp_path).hash == whole.hash
    assert (tmp_path / "kept").stat().st_mtime_ns == before.st_mtime_ns
    assert not list(tmp_path.glob("shards/*/*"))


@pytest.mark.parametrize("damage", ["tokens", "index", "record", "source", "tokenizer"])
def test_what_does_not_stand_as_it_was_is_done_again(
    damage: str, whole: Corpus, hub: Hub, tmp_path: Path
) -> None:
    """A stop after the second shard; then one byte of the first one's files is another."""
    source = tmp_path / "copy"
    for name in [*SHARDS, "README.md"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((hub.source / name).read_bytes())
    copy = Hub(source, hub.tokenizer)
    first, _, third, *_ = in_order(hub)
    wanted = (source / third).read_bytes()
    (source / third).write_bytes(wanted[: len(wanted) // 2])
    with pytest.raises(DataError):
        copy.prepare(tmp_path / "cache")
    (source / third).write_bytes(wanted)
    tokens = tokens_of(tmp_path / "cache", first)
    if damage == "source":
        write_shard(source / first, [f"text {n} of another shard" * 9 for n in range(60)])
    elif damage == "tokenizer":
        other = json.loads(hub.tokenizer.read_text())
        del other["model"]["merges"][-1]
        (tmp_path / "other.json").write_text(json.dumps(other))
        copy = Hub(source, tmp_path / "other.json")
    else:
        suffix = {"tokens": "bin", "index": "index", "record": "json"}[damage]
        file = tokens.with_suffix(f".{suffix}")
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    found = copy.prepare(tmp_path / "cache")
    assert found.hash == (
        copy.prepare(tmp_path / "afresh").hash if damage in ("source", "tokenizer") else whole.hash
    )


def test_killed_processes_leave_nothing_running_and_nothing_half_done(
    whole: Corpus, hub: Hub, tmp_path: Path
) -> None:
    cache, script = tmp_path / "cache", tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run(
        [sys.executable, script, hub.source, hub.tokenizer, cache],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    children = json.loads(done.stdout)
    assert len(children) == 2
    deadline = time.monotonic() + 10
    while any(map(running, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(running, children))
    standing = {path: path.stat().st_ino for path in cache.glob("shards/*/*.bin")}
    assert standing
    assert hub.prepare(cache).hash == whole.hash
