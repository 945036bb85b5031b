"""Documentation pages as the tests see them: their code blocks, links and names, in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")


class Block(NamedTuple):
    """One fenced block. `kind` is the word behind the fence: python, sh, output, text, ..."""

    kind: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page.read_text())]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    """Targets inside the repository, without what stands behind a #."""
    found = [target.partition("#")[0] for target in LINK.findall(CODE.sub("", prose(page)))]
    return [target for target in found if target and "://" not in target]


def inline(page: Path) -> list[str]:
    """Everything that stands in backquotes outside of blocks."""
    return CODE.findall(prose(page))


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))
