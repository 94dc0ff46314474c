"""The built documentation as a reader has it."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = {"h1": 1, "h2": 2, "h3": 3}


@dataclass
class Section:
    """What stands below a heading, up to the next of its level; rows of its tables by cell."""

    level: int
    text: str = ""
    links: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def row(self, first: str) -> list[str]:
        """The only row that begins so."""
        (found,) = (row for row in self.rows if row and row[0] == first)
        return found


class Reader(HTMLParser):
    """Sections by the id of their heading, and every address that a browser would load."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.sections: dict[str, Section] = {}
        self.loaded: list[str] = []
        self._open: list[Section] = []
        self._in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed"):
            self.loaded += [given[name] for name in ("src", "srcset") if name in given]
        if tag in ("link", "object"):
            self.loaded += [given[name] for name in ("href", "data") if name in given]
        if tag in HEADINGS and "id" in given:
            level = HEADINGS[tag]
            self._open = [section for section in self._open if section.level < level]
            self._open.append(Section(level))
            self.sections[given["id"]] = self._open[-1]
        for section in self._open:
            if tag == "a":
                section.links.append(given.get("href", ""))
            elif tag == "tr":
                section.rows.append([])
            elif tag in ("td", "th") and section.rows:
                section.rows[-1].append("")
        self._in_cell = self._in_cell or tag in ("td", "th")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        for section in self._open:
            section.text += data
            if self._in_cell and section.rows and section.rows[-1]:
                section.rows[-1][-1] += data


def words(text: str) -> str:
    """Without marks of code and line breaks."""
    return " ".join(text.replace("`", "").split())
