"""Checks before any administrative request: its origin, and the size of its body."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from trilogue.gateway.memory_budget import MemoryHolder

MEMORY = "trilogue.memory"  # in the scope of a request: what it holds of the node's memory
BODY_MEMORY = "trilogue.body_memory"  # the same for its body
CERTIFICATE = "certificate"  # in the state of a request: what the client showed over TLS
BODY_MAX = 1 << 20
BODY_FREE = 16 << 10  # of a body, for which no request waits
BODY_S = 30.0  # from the head of a request to the end of its body
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class HttpError(Exception):
    """An error with an HTTP status and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def check_origin(request: Request, *, changes: bool) -> None:
    """Refuse changes that a page makes a browser send; raises HttpError 403.

    A browser in the network reaches this listener without a password. The console's pages change
    things by forms of their own only (console/request.py), so no page needs these requests.
    """
    headers = request.headers
    by_page = "origin" in headers or headers.get("sec-fetch-site", "none") != "none"
    if by_page and changes:
        raise HttpError(403, "pages may change nothing here")


async def reserve_memory(request: Request, size: int) -> None:
    """Wait until there is memory for a reply of this size; it is counted until it was sent."""
    memory = request.scope.get(MEMORY)
    if isinstance(memory, MemoryHolder):
        await memory.budget.reserve(memory, size)


async def read_body(request: Request) -> bytes:
    """Return the whole body; raises HttpError 413 where it is too large, 408 where it is late."""
    try:
        async with asyncio.timeout(BODY_S):
            return await _read_body(request)
    except TimeoutError:
        raise HttpError(408, f"a body has to come within {BODY_S} s") from None


async def _read_body(request: Request) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > BODY_MAX:
        raise HttpError(413, f"a body has at most {BODY_MAX} bytes")
    memory = request.scope.get(BODY_MEMORY)
    counted = BODY_FREE
    body = bytearray()
    async for piece in request.stream():
        if len(body) + len(piece) > BODY_MAX:
            raise HttpError(413, f"a body has at most {BODY_MAX} bytes")
        while len(body) + len(piece) > counted:
            counted *= 2
            if isinstance(memory, MemoryHolder):
                await memory.budget.reserve(memory, counted)
        body += piece
        del piece  # uvicorn's buffer can go while this waits for the next one
    return bytes(body)
