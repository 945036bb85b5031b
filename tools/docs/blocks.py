"""Generated parts of hand-written pages: found by their marks, filled by their makers.

    <!-- generated: NAME (python -m tools.docs) -->
    ... whatever the maker of NAME returns ...
    <!-- end of NAME -->

What stands between the marks belongs to the maker, all the rest to people.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python -m tools.docs"
MARKS = re.compile(r"<!-- generated: ([\w-]+) [^>]*-->\n(.*?)<!-- end of ([\w-]+) -->", re.DOTALL)

Maker = Callable[[], str]


class MarkError(Exception):
    """Marks that do not match, or an unknown name."""


def pages() -> list[Path]:
    """Every page that may hold a generated part."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def fill(text: str, makers: Mapping[str, Maker]) -> str:
    """The page with every generated part as it should be now."""

    def made(found: re.Match[str]) -> str:
        name, _, end = found.groups()
        if name != end:
            raise MarkError(f"{name} ends as {end}")
        if name not in makers:
            raise MarkError(f"nobody makes {name}")
        return (
            f"<!-- generated: {name} ({COMMAND}) -->\n\n"
            f"{makers[name]().strip()}\n\n<!-- end of {name} -->"
        )

    return MARKS.sub(made, text)


def names(text: str) -> list[str]:
    """What a page wants to be made."""
    return [found[1] for found in MARKS.finditer(text)]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; a bar inside a cell does not end it."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    return str(value).replace("\n", " ").replace("|", "\\|")
