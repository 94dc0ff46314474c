"""A page as a reader has it: its words, tables, links and images."""

from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """Text, tables, links and tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.addresses: list[str] = []
        self.titles: list[str] = []
        self.images: list[dict[str, str]] = []
        self.sheets: dict[str, str] = {}  # summary of every details element, by the id inside it
        self._summary: list[str] | None = None
        self._sheet = ""
        self._table = ""
        self._quiet = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.addresses += [str(given[n]) for n in ("src", "href", "xlink:href") if n in given]
        if "title" in given:
            self.titles.append(str(given["title"]))
        if tag == "img":
            self.images.append({name: str(value) for name, value in given.items()})
        if tag == "summary":
            self._summary = []
        if self._sheet and "id" in given:
            if str(given["id"]).startswith("cell-"):
                self.sheets[str(given["id"])] = self._sheet
            self._sheet = ""
        if tag == "table":
            self._table = str(given["class"])
            self.tables.setdefault(self._table, [])
        elif tag == "tr":
            self.tables[self._table].append([])
        elif tag in ("td", "th"):
            self.tables[self._table][-1].append("")
        elif tag in ("style", "script"):
            self._quiet += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "summary" and self._summary is not None:
            self._sheet, self._summary = "".join(self._summary).strip(), None
        if tag == "table":
            self._table = ""
        elif tag in ("style", "script"):
            self._quiet -= 1

    def handle_data(self, data: str) -> None:
        if self._quiet:
            return
        self.text.append(data)
        if self._summary is not None:
            self._summary.append(data)
        if self._table and self.tables[self._table] and self.tables[self._table][-1]:
            self.tables[self._table][-1][-1] += data.strip()

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def read(page: Path) -> Page:
    return Page(page.read_text(encoding="utf-8"))
