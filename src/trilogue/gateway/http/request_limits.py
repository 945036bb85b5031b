"""Checks before any administrative request: its origin, and the size of its body."""

from __future__ import annotations

import asyncio
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from starlette.requests import ClientDisconnect, Request

from trilogue.gateway.memory_budget import MemoryHolder

MEMORY = "trilogue.memory"  # in the scope of a request: what it holds of the node's memory
BODY_MEMORY = "trilogue.body_memory"  # the same for its body
ENTRY_MEMORY = "entry memory"  # in the state of a WebSocket: what its client may use for entries
CERTIFICATE = "certificate"  # in the state of a request: what the client showed over TLS
CREDENTIALS = "trilogue.credentials"  # in the scope: the Authorization headers of the request
BODY_MAX = 1 << 20
BODY_FREE = 16 << 10  # of a body, for which no request waits
SMALL_BYTES = 64 << 10  # of a body that is not mapped
PIECE_BYTES = 64 << 10  # at which uvicorn reads no more before a piece is taken
STREAM_S = 60.0  # between two pieces of a body that is handled while it comes
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
    if not isinstance(memory, MemoryHolder):
        return
    if size <= memory.size_bytes:
        memory.resize(size)
        return
    memory.resize(0)  # else all that hold some could wait for each other
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
    length = int(declared) if declared.isdigit() else 0
    if length > BODY_MAX:
        raise HttpError(413, f"a body has at most {BODY_MAX} bytes")
    if "transfer-encoding" in request.headers:
        length = BODY_MAX
    memory = _BodyReservation(request)
    body = _BodyBuffer(length)
    try:
        while True:
            # Before the next piece is taken: what waits is in uvicorn's buffer only, not here too.
            if body.size < length:
                await memory.grow(min(length, body.size + PIECE_BYTES))
            message = await request.receive()  # `stream` would keep the piece before this one
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            size = body.size + len(message.get("body", b""))
            if size > BODY_MAX:
                raise HttpError(413, f"a body has at most {BODY_MAX} bytes")
            await memory.grow(size)
            body.add(message.get("body", b""))
            if not message.get("more_body", False):
                return body.content()
            del message
    finally:
        body.close()  # the traceback of an error keeps this frame until the next collection


class _BodyBuffer:
    """What has come of a body, up to `BODY_MAX` bytes.

    A large one is mapped, not taken from the heap: what is dropped goes back to the system at once.
    Of a hundred bodies between other objects the heap would keep all (docs/decisions/0080).
    """

    def __init__(self, length: int) -> None:
        self.size = 0
        self._small = bytearray()
        self._mapped: mmap | None = None
        if length > SMALL_BYTES:
            self._mapped = mmap(-1, BODY_MAX, MAP_PRIVATE | MAP_ANONYMOUS)

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self._mapped is None:
            self._small += piece
        else:
            self._mapped.write(piece)

    def content(self) -> bytes:
        return bytes(self._small if self._mapped is None else self._mapped[: self.size])

    def close(self) -> None:
        self._small.clear()
        if self._mapped is not None:
            self._mapped.close()


class BodyPieces:
    """A body that is handled while it comes: its size is not bounded, that of a piece is.

    Each piece has to come within `STREAM_S`.
    """

    def __init__(self, request: Request) -> None:
        declared = request.headers.get("content-length", "")
        self._request = request
        self._left = int(declared) if declared.isdigit() else None
        self._memory = _BodyReservation(request)
        self.at_end = self._left == 0

    async def read(self, kept: int = 0) -> bytes:
        """Return the next piece; raises HttpError 408 where it is late.

        `kept` is what the caller still has of the pieces before.
        """
        await self._memory.grow(kept + PIECE_BYTES)
        try:
            async with asyncio.timeout(STREAM_S):
                message = await self._request.receive()
        except TimeoutError:
            raise HttpError(408, f"a piece of a body has to come within {STREAM_S} s") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        if self._left is not None:
            self._left -= len(piece)
        self.at_end = self._left == 0 or not message.get("more_body", False)
        return piece


class _BodyReservation:
    """What a body has reserved of the node's memory, in steps that double."""

    def __init__(self, request: Request) -> None:
        self._memory = request.scope.get(BODY_MEMORY)
        self._counted = BODY_FREE

    async def grow(self, size: int) -> None:
        """Wait until there is memory for a body of this size, and for what uvicorn has of it."""
        if size <= self._counted:
            return
        while self._counted < size:
            self._counted *= 2
        if isinstance(self._memory, MemoryHolder):
            await self._memory.budget.reserve(self._memory, self._counted + 2 * PIECE_BYTES)
