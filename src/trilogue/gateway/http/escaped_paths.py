"""Escaped slashes inside the parts of a path, which ASGI servers decode."""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

SLASH = "\0"  # stands for an escaped slash inside a part of a path
ESCAPED_SLASH = re.compile("%2[fF]")


def keep_escaped_slashes(app: ASGIApp) -> ASGIApp:
    """Return an application around another that sees `SLASH` in place of `%2F` in a path."""

    async def with_slashes(scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") or b""
        if b"%2f" in raw.lower() and b"%00" not in raw:
            path = ESCAPED_SLASH.sub("%00", raw.decode("ascii", "replace"))
            scope = {**scope, "path": unquote(path)}
        await app(scope, receive, send)

    return with_slashes
