"""The hub and its failures: a real client against a server on loopback, and what is tried again."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from datasets.exceptions import DatasetNotFoundError
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from depthbench.data import Corpus
from depthbench.data.hub import repository
from depthbench.data.hub.repository import Shard, at_hand, retried
from depthbench.errors import DataError, InputError
from tests.data.hub.fake_hub import COMMIT, REPOSITORY
from tests.data.hub.kit import Hub
from tests.data.hub.test_resume import in_order

ROOT = Path(__file__).parents[3]
SCRIPT = """
import json, os, sys
from pathlib import Path
from tests.data.hub.fake_hub import FakeHub

source, tokenizer, cache, second, third = sys.argv[1:]
server = FakeHub(Path(source), Path(tokenizer))
os.environ.update(HF_ENDPOINT=server.url, HF_HOME=f"{cache}/home", USE_TORCH="0")

from depthbench.data import open_corpus, prepare
from depthbench.data.hub import repository
from depthbench.data.hub.prepare import HubAccess
from depthbench.errors import DataError
from tests.data.hub.kit import Hub

repository.WAITS = (0,)
options = Hub(Path(source), Path(tokenizer)).options()
estimates = []
access = HubAccess(processes=1, on_estimate=estimates.append)
said = {}
server.failing[second] = 10**6
try:
    prepare("fineweb-edu", Path(cache), hub=options, access=access)
except DataError as error:
    said["error"] = str(error)
said["before"] = dict(server.asked)
server.failing = {third: 1}
corpus = open_corpus(prepare("fineweb-edu", Path(cache), hub=options, access=access))
said |= {"after": dict(server.asked), "hash": corpus.hash, "sources": corpus.header.sources}
said["download"] = estimates[0].download_bytes
print(json.dumps(said))
"""


def test_a_network_that_fails_and_comes_back(whole: Corpus, hub: Hub, tmp_path: Path) -> None:
    """The second shard never arrives, then all do, the third in two pieces."""
    first, second, third, *_ = in_order(hub)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, hub.source, hub.tokenizer, tmp_path, second, third],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={k: v for k, v in environment.items() if k != "HF_HUB_OFFLINE"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert f"downloading {second} failed 2 times" in said["error"]
    assert "Run the same command again" in said["error"]
    sample_and_download = said["before"][first]
    assert said["after"][first] - sample_and_download < sample_and_download  # the sample alone
    assert said["after"][third] == 2  # broken off in the middle, and gone on with
    assert said["hash"] == whole.hash
    assert said["sources"] == whole.header.sources | {REPOSITORY: COMMIT}
    used = [name for name in said["sources"] if name.endswith(".parquet")]
    assert said["download"] == sum((hub.source / name).stat().st_size for name in used)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited, without waiting."""
    found: list[float] = []
    monkeypatch.setattr(repository.time, "sleep", found.append)
    return found


class Attempt:
    """Raises the error the first so many times."""

    def __init__(self, error: Exception, times: int = 10**6) -> None:
        self.error, self.times, self.calls = error, times, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return "fetched"


@pytest.mark.parametrize(
    "error", [ConnectionResetError("reset"), TimeoutError(), LocalEntryNotFoundError("no network")]
)
def test_what_the_network_fails_is_tried_again_ever_later(
    error: Exception, slept: list[float]
) -> None:
    assert retried("it", Attempt(error, 3)) == "fetched"
    assert len(slept) == 3
    assert slept == sorted(set(slept))
    attempt = Attempt(error)
    with pytest.raises(DataError, match=r"it failed 5 times.*Run the same command again"):
        retried("it", attempt)
    assert attempt.calls == 5


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (DatasetNotFoundError("there is none"), DataError),
        (OfflineModeIsEnabled("offline"), DataError),
        (ValueError("damaged"), DataError),
        (InputError("no such subset"), InputError),
        (OSError(errno.ENOSPC, "full"), OSError),
    ],
)
def test_what_would_fail_again_is_not(
    error: Exception, raised: type[Exception], slept: list[float]
) -> None:
    attempt = Attempt(error)
    with pytest.raises(raised):
        retried("it", attempt)
    assert attempt.calls == 1
    assert slept == []


def test_other_content_than_the_hub_lists_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = tmp_path / "arrived"
    arrived.write_bytes(b"something else")
    monkeypatch.setattr(repository, "_download", lambda shard, folder: arrived)
    shard = Shard("a.parquet", f"hf://datasets/a/b@{COMMIT}/a.parquet", 3, "0" * 64)
    with pytest.raises(DataError, match=r"instead of 0000"), at_hand(shard, tmp_path):
        pass
    assert not arrived.exists()  # so that it is fetched anew
