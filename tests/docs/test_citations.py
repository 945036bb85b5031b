"""Sources, tests and pages cite what a reader can open: sections of our pages, KIPs and PIPs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.docs.page import FENCE, ROOT, name
from tests.test_tidy import tracked

CITATION = re.compile(r"(docs/[\w/.-]+\.md)(?:#([\w-]+))?")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
HERE = Path(__file__)
CITING = [
    path
    for path in [*tracked("*.py"), *tracked("*.pxd"), *tracked("*.proto"), *tracked("*.md")]
    if "decisions" not in path.parts and path.name != "CHANGELOG.md" and path != HERE
]


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as mkdocs and code hosts make them."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def missing(text: str) -> list[str]:
    """Citations of pages or sections that do not exist."""
    return [
        found.group()
        for found in CITATION.finditer(text)
        if not (page := ROOT / found[1]).exists() or (found[2] and found[2] not in anchors(page))
    ]


def test_cited_sections_exist():
    found = {name(path): missing(path.read_text()) for path in CITING}

    assert {path: sections for path, sections in found.items() if sections} == {}


def test_a_missing_section_is_found():
    page = "docs/reference/wire/kafka.md"

    assert missing(f"{page} {page}#fetch-sessions {page}#no-such docs/none.md") == [
        f"{page}#no-such",
        "docs/none.md",
    ]
