"""MkDocs hook: pages that are made from the code when the documentation is built.

Named under `hooks:` in `mkdocs.yml`. Nothing it makes is written into the repository, so that no
page can lag behind the code.
"""

import logging
import re
from pathlib import Path

from generated import commands, designs, probes, rows, suites
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "designs.md": designs.page,
    "probes.md": probes.page,
    "suites.md": suites.page,
    "rows.md": rows.page,
    "command-line.md": commands.page,
}
PICTURES = {"images/loss_vs_aspect.svg": ROOT / "reports" / "laptop" / "loss_vs_aspect.svg"}

log = logging.getLogger("mkdocs.hooks.generate")
_external: set[str] = set()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages, and the pictures that live outside `docs/`."""
    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    for name, path in PICTURES.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Remembers links that leave the documentation."""
    _external.update(re.findall(r'href="(https?://[^"]+)"', html))


def on_post_build(config: MkDocsConfig) -> None:
    """Lists these links: they are shown and never fetched."""
    log.info("%d external links, not fetched:", len(_external))
    for link in sorted(_external):
        log.info("  %s", link)
