"""Slashes in paths: escaped ones inside a part, which ASGI servers decode, and one at the end."""

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


def ignore_last_slash(app: ASGIApp, root: str) -> ASGIApp:
    """Return an application around another, below `root`, that serves a path with `/` at its end.

    Starlette would redirect, and not each client sends the body of a POST again.
    """

    async def without_slash(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.endswith("/") and len(path) > len(root) + 1:
            raw = scope.get("raw_path")
            scope = {**scope, "path": path[:-1], "raw_path": raw and raw.removesuffix(b"/")}
        await app(scope, receive, send)

    return without_slash
