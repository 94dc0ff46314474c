from collections.abc import Callable
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.docs.kit import ROOT, Reader


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


@pytest.fixture(scope="session")
def page(site: Path) -> Callable[[str], Reader]:
    return lambda name: Reader((site / f"{name}.html").read_text(encoding="utf-8"))
