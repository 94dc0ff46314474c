"""The site as a whole: nothing is fetched, and a link that leads nowhere ends the build."""

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from tests.docs.kit import ROOT, Reader

FOREIGN = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = {
        address: path.name
        for path in site.rglob("*.html")
        for address in Reader(path.read_text(encoding="utf-8")).loaded
    }
    assert any(address.endswith("theme.css") for address in loaded)
    assert any(address.endswith("loss_vs_aspect.svg") for address in loaded)
    assert not {address for address in loaded if FOREIGN.match(address)}


def test_no_style_sheet_loads_anything_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.css"):
        style = path.read_text(encoding="utf-8")
        addresses = re.findall(r"url\(\s*['\"]?([^)'\"]+)", style)
        addresses += re.findall(r"@import\s+['\"]([^'\"]+)", style)
        assert not [address for address in addresses if FOREIGN.match(address)], path.name


def test_what_pages_load_is_there(site: Path) -> None:
    for path in site.rglob("*.html"):
        for address in Reader(path.read_text(encoding="utf-8")).loaded:
            # The page for what was not found is served from anywhere, and has absolute addresses.
            base = site if address.startswith("/") else path.parent
            assert (base / address.lstrip("/")).exists(), (path.name, address)


@pytest.mark.parametrize(
    "fault",
    [
        "[a page](absent.md)",
        "[a section](other.md#absent)",
        "[itself](#absent)",
        "[from the root](/other.md)",
        "![a picture](absent.png)",
    ],
)
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, fault: str) -> None:
    with pytest.raises(Abort):
        _build(tmp_path, fault)


def test_a_link_that_leads_somewhere_does_not(tmp_path: Path) -> None:
    _build(tmp_path, "[a section](other.md#here) and [another site](https://example.org/absent)")
    assert (tmp_path / "site" / "index.html").is_file()


def _build(folder: Path, text: str) -> None:
    """Two pages under the repository's settings, without what is made from the code."""
    nav = ["index.md", "other.md"]
    pages = folder / "pages"
    pages.mkdir()
    (pages / "index.md").write_text(f"# Page\n\n{text}\n")
    (pages / "other.md").write_text("# Other\n\n## Here\n")
    settings = {"docs_dir": str(pages), "site_dir": str(folder / "site"), "hooks": []}
    build(load_config(str(ROOT / "mkdocs.yml"), **settings, nav=nav, extra_css=[]))
