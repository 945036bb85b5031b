"""A hook of mkdocs: links to files of the repository outside of docs/ become plain names.

The site has no copy of the sources, so such a link would lead nowhere. On a code host and in an
editor the pages keep their links.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, files: Any, **_: object) -> str:
    """Return the page with links that mkdocs can resolve."""
    folder = posixpath.dirname(page.file.src_uri)

    def plain(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        return found[0] if files.get_file_from_path(path) is not None else text

    return LINK.sub(plain, markdown)
