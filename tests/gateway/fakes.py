"""A transport and a loop that a test drives by hand: no sockets, no waiting."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable


class FakeTransport(asyncio.Transport):
    """Keeps what is written; `room` bytes fit before it pauses writing."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.written = bytearray()
        self.writes = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self.stuck = False
        self.unsent = 0
        self._high = 64 << 10
        self._paused = False
        self._arrived = bytearray()
        self._piece: int | None = None
        self._giving = False

    def get_extra_info(self, name, default=None):
        return ("192.0.2.1", 40_000) if name == "peername" else default

    def set_write_buffer_limits(self, high=None, low=None):
        self._high = high

    def get_write_buffer_size(self):
        return self.unsent

    def write(self, data):
        assert not self.closed, "written after close"
        self.writes += 1
        self._keep(data)

    def writelines(self, buffers: Iterable[bytes]):
        self.writes += 1
        self._keep(b"".join(buffers))

    def _keep(self, data):
        self.written += data
        if self.stuck:
            self.unsent += len(data)
            if self.unsent > self._high and not self._paused:
                self._paused = True
                self.protocol.pause_writing()

    def unstick(self):
        """The peer reads everything."""
        self.stuck = False
        self.unsent = 0
        if self._paused:
            self._paused = False
            self.protocol.resume_writing()

    def pause_reading(self):
        assert self.reading
        self.reading = False

    def resume_reading(self):
        assert not self.reading
        self.reading = True
        self._give()

    def is_closing(self):
        return self.closed

    def close(self):
        self._end()

    def abort(self):
        self.aborted = True
        self._end()

    def _end(self):
        if not self.closed:
            self.closed = True
            self.protocol.connection_lost(None)

    # ---- the other end

    def receive(self, data: bytes, piece: int | None = None) -> None:
        """Give bytes to the protocol as a socket would, all at once or in pieces.

        What is not read waits, as in a kernel, until it is.
        """
        self._arrived += data
        self._piece = piece
        self._give()

    def _give(self) -> None:
        if self._giving:
            return
        self._giving = True
        try:
            while self._arrived and self.reading and not self.closed:
                room = self.protocol.get_buffer(-1)
                take = min(len(room), len(self._arrived), self._piece or len(self._arrived))
                room[:take] = self._arrived[:take]
                del self._arrived[:take]
                self.protocol.buffer_updated(take)
        finally:
            self._giving = False

    def frames(self) -> list[bytes]:
        """The whole frames written so far, without their lengths."""
        found, at = [], 0
        while at + 4 <= len(self.written):
            (size,) = struct.unpack_from(">i", self.written, at)
            found.append(bytes(self.written[at + 4 : at + 4 + size]))
            at += 4 + size
        assert at == len(self.written), "half a frame was written"
        return found


class Turns:
    """`call_soon` by hand."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.waiting.append(callback)

    def run(self) -> int:
        """One round of the loop: what waits now, not what that adds."""
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()
        return len(waiting)

    def run_all(self) -> None:
        for _ in range(10_000):
            if not self.run():
                return
        raise AssertionError("the loop never comes to rest")


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
