"""A page of the console as a test reads it: its text, its tables, its forms and links."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import httpx


class Page(HTMLParser):
    """A parsed page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.text = ""
        self.rows: list[list[str]] = []
        self.links: dict[str, str] = {}
        self.forms: list[dict[str, str]] = []
        self._link = ""
        self._in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self.rows[-1].append("")
            self._in_cell = True
        elif tag == "a":
            self._link = given["href"]
            if "rel" in given:
                self.links[given["rel"]] = given["href"]
        elif tag == "form":
            self.forms.append({"action": given.get("action", "")})
        elif tag == "input" and given.get("type") == "hidden":
            self.forms[-1][given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th"}:
            self._in_cell = False
        elif tag == "a":
            self._link = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_cell:
            self.rows[-1][-1] += data
        if self._link and data.strip():
            self.links[data.strip()] = self._link

    def row(self, first: str) -> list[str]:
        """The row of a table whose first cell, or second, has this text."""
        found = [row for row in self.rows if first in row[:2]]
        assert len(found) == 1, (first, self.rows)
        return found[0]


class ConsoleClient:
    """A browser without scripts: it gets pages and sends their forms."""

    def __init__(self, address: str, **how: Any) -> None:
        self.address = address
        self.client = httpx.Client(base_url=address, timeout=60, follow_redirects=True, **how)

    def get(self, path: str, status: int = 200, **parameters: Any) -> Page:
        answer = self.client.get(f"/console{path}", params=parameters or None)
        assert answer.status_code == status, answer.text
        return Page(answer.text)

    def follow(self, page: Page, link: str) -> Page:
        return Page(self.client.get(page.links[link]).raise_for_status().text)

    def send(self, page: Page, action: str, status: int = 200, **fields: str) -> Page:
        """Send a form of a page, as a browser of that page does."""
        (form,) = (each for each in page.forms if each["action"] == f"/console{action}")
        hidden = {name: value for name, value in form.items() if name != "action"}
        answer = self.client.post(
            form["action"],
            data={**hidden, **fields},
            headers={"origin": self.address, "sec-fetch-site": "same-origin"},
        )
        assert answer.status_code == status, answer.text
        return Page(answer.text)
