"""Parsing of report pages: tables, data, text."""

import json
from html.parser import HTMLParser
from typing import Any


class PageTables(HTMLParser):
    """Parses a page: `tables` by id, each a list of rows (lists of cells); `data`; the names of all elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._rows: list[list[str]] | None = None
        self._cell = False
        self._script: str | None = None
        self._raw: dict[str, str] = {}
        self.feed(text)
        self.close()

    @property
    def data(self) -> dict[str, Any]:
        """What the page draws."""
        return dict(json.loads(self._raw["data"]))

    def rows(self, key: str) -> list[list[str]]:
        """Return the rows of a table without its heading."""
        return self.tables[key][1:]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.elements.append((tag, about))
        if tag == "script":
            self._script = about.get("id") or "code"
        elif tag == "table":
            self._rows = self.tables.setdefault(str(about.get("id")), [])
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag in ("td", "th") and self._rows:
            self._rows[-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False
        elif tag == "table":
            self._rows = None
        elif tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self._raw[self._script] = self._raw.get(self._script, "") + data
        elif self._cell and self._rows:
            self._rows[-1][-1] += data
