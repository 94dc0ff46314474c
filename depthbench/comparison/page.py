"""A comparison as one HTML file, which needs no other and no network."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from depthbench import __version__, report
from depthbench.comparison.blocks import Block
from depthbench.errors import InputError
from depthbench.folder import replacing
from depthbench.pages import environment

_HERE = Path(__file__).parent
_STYLE = Path(report.__file__).with_name("page.css")


def html(blocks: Sequence[Block]) -> str:
    """The page; everything from a report is escaped."""
    templates = environment(_HERE)
    style = Markup(_STYLE.read_text(encoding="utf-8"))
    page = templates.get_template("page.html.j2")
    return page.render(version=__version__, style=style, blocks=blocks).strip() + "\n"


def writable(path: Path, sources: Sequence[str]) -> Path:
    """The path, if a page may go there. Raises `InputError` for a report's own file."""
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"--html {path}: name a file in a folder that exists")
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--html {path}: name a file that ends in .html, and no other is replaced")
    places = {Path(source).resolve() for source in sources}
    if path.exists() and places & {path.resolve(), *path.resolve().parents}:
        raise InputError(f"--html {path} belongs to one of the reports: name another file")
    return path


def write_page(path: Path, blocks: Sequence[Block]) -> None:
    with replacing(path) as aside:
        aside.write_text(html(blocks), encoding="utf-8")
