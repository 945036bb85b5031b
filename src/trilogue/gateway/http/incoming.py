"""What is looked at before any administrative request: where it comes from, and how large it is."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

BODY_MAX = 1 << 20
BODY_S = 30.0  # from the head of a request to the end of its body
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Problem(Exception):
    """A refusal with a status of its own."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def check_origin(request: Request, *, changes: bool) -> None:
    """Refuse what a page makes a browser send: it needs no password to get here; Problem 403.

    We serve no pages, so a page that says it is ours came by a name that was made to mean us.
    """
    headers = request.headers
    by_page = "origin" in headers or headers.get("sec-fetch-site", "none") != "none"
    if by_page and changes:
        raise Problem(403, "pages may change nothing here")


async def read_body(request: Request) -> bytes:
    """The whole body, if it is no larger than any of ours and comes in time; Problem 413, 408."""
    try:
        async with asyncio.timeout(BODY_S):
            return await _read_body(request)
    except TimeoutError:
        raise Problem(408, f"a body has to come within {BODY_S} s") from None


async def _read_body(request: Request) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > BODY_MAX:
        raise Problem(413, f"a body has at most {BODY_MAX} bytes")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_MAX:
            raise Problem(413, f"a body has at most {BODY_MAX} bytes")
    return bytes(body)
