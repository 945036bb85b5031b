"""What an HTTP connection or a WebSocket received, parsed in pieces, in turn with all requests.

One read may have thousands of header lines, chunks or frames, of 10 to 20 µs each. What is large
waits behind small requests (gateway/frame_dispatcher.py), and nothing more is read meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trilogue.gateway.http.peer_memory import PeerMemory
from trilogue.gateway.memory_budget import ConnectionMemory

PIECE_BYTES: Final = 4 << 10  # that are parsed before the clock is looked at
SMALL_BYTES: Final = 1 << 10  # that wait for no large ones
NOTHING: Final = memoryview(b"")


class _UnparsedMemory(PeerMemory):
    """What is not parsed yet; it waits for the peer while that does not read."""

    __slots__ = ("is_unread",)
    is_unread: Callable[[], bool]

    def progress(self) -> int | None:
        return self.steps if self.is_unread() else None


class ReceivedPieces:
    """The bytes of one connection that are not parsed yet.

    `parse` takes a piece of `piece_bytes()` bytes at most. While `is_ready` is false nothing is
    parsed until `parse_on` is called; while `is_paused` is true the connection's owner wants
    nothing to be read. While `is_unread` is true the peer does not read, and is closed where others
    need the memory.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        memory: ConnectionMemory,
        parse: Callable[[bytes], None],
        *,
        address: str,
        is_paused: Callable[[], bool],
        is_unread: Callable[[], bool],
        is_ready: Callable[[], bool] = lambda: True,
        piece_bytes: Callable[[], int] = lambda: PIECE_BYTES,
    ) -> None:
        self._transport = transport
        self._iterations = memory.iterations
        self._memory = _UnparsedMemory(memory.received, address, transport, "connection.unparsed")
        self._memory.is_unread = is_unread
        self._memory.steps = 0  # pieces parsed
        self._parse = parse
        self._is_paused = is_paused
        self._is_ready = is_ready
        self._piece_bytes = piece_bytes
        self._rest = NOTHING
        self._is_deferred = False  # `_take_turn` is called later
        self._is_held = False  # nothing is read

    def add(self, data: bytes) -> None:
        """Parse what was received, now or in its turn."""
        self._rest = memoryview(bytes(self._rest) + data if self._rest else data)
        self.parse_on()

    def parse_on(self) -> None:
        """Parse as far as time allows and the connection is ready."""
        while self._rest and not self._transport.is_closing():
            if self._is_deferred or not self._is_ready():
                self._hold()
                return
            if self._must_wait():
                self._defer()
                self._hold()
                return
            self._memory.steps = (self._memory.steps or 0) + 1
            size = self._piece_bytes()
            piece, self._rest = self._rest[:size], self._rest[size:]
            self._parse(bytes(piece))
        self.close()

    def close(self) -> None:
        """Drop what is not parsed, and read again where the transport is open."""
        self._rest = NOTHING
        if self._is_held:
            self._is_held = False
            self._memory.release()
            if not self._is_paused() and not self._transport.is_closing():
                self._transport.resume_reading()

    def keep_held(self) -> bool:
        """Do not read, if that was so: the owner has resumed the transport; return whether."""
        if self._is_held:
            self._hold()
        return self._is_held

    def _must_wait(self) -> bool:
        iterations = self._iterations
        if iterations.is_used_up():
            return True
        return len(self._rest) > SMALL_BYTES and not iterations.admits_large()

    def _defer(self) -> None:
        self._is_deferred = True
        is_large = len(self._rest) > SMALL_BYTES
        wait = self._iterations.defer_large if is_large else self._iterations.defer
        wait(self._take_turn)

    def _take_turn(self) -> None:
        self._is_deferred = False
        self.parse_on()

    def _hold(self) -> None:
        self._is_held = True
        self._memory.resize(len(self._rest))
        if not self._transport.is_closing():
            self._transport.pause_reading()
