import pytest

from depthbench.data import Corpus
from tests.data.hub.kit import Hub, write_repository, write_tokenizer


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Hub:
    folder = tmp_path_factory.mktemp("hub")
    return Hub(write_repository(folder / "copy"), write_tokenizer(folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def whole(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Prepared by one process without a disturbance: all of two shards and part of a third."""
    return hub.prepare(tmp_path_factory.mktemp("whole"))
