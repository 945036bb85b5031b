"""One TCP connection of a client: frames in, buffers out. The client side's only asyncio transport.

Knows nothing of any protocol: a framer cuts the bytes, by default one for frames that start with a
32-bit length. The owner gets whole frames by callback; a frame is a view that is valid only during
that callback.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from trilogue.client.errors import ConnectionLost, describe_os_error
from trilogue.wire.errors import WireError
from trilogue.wire.frames import Frames, Int32Frames

log = logging.getLogger("trilogue.client")
FRAME_LIMIT = 256 << 20
LARGE_BYTES = 64 << 10  # of a frame whose memory is worth a buffer of its own
CLOSED_HERE = "connection is closed"
CLOSE_S = 1.0  # the end of TLS takes an answer of the server
KEEPALIVE = ("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)
"""A server that vanished without a word is missed after two minutes, also by who waits for long."""


Dial = Callable[[str, int], Awaitable[socket.socket | None]]
"""Returns a socket that is connected to host and port already; None: connect by TCP."""


class FrameConnection(asyncio.BufferedProtocol):
    """A connection that delivers frames to `on_frame` and its end to `on_lost`."""

    def __init__(
        self,
        on_frame: Callable[[memoryview], None],
        on_lost: Callable[[Exception], None],
        frame_limit: int = FRAME_LIMIT,
        framer: Callable[[int], Frames] = Int32Frames,
    ) -> None:
        self._frames = framer(frame_limit)
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._reason: Exception | None = None
        self._room: asyncio.Future[None] | None = None
        self._is_tls = False
        self._has_received = False
        self._ended = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the transport is there and not closing."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_backed_up(self) -> bool:
        """Whether more was written than the peer has read for now."""
        return self._room is not None

    async def drained(self) -> None:
        """Wait until the peer has read most of what was written, or the connection is lost."""
        if self._room is not None:
            await asyncio.shield(self._room)

    @property
    def frame_limit(self) -> int:
        """The longest frame that is accepted; may be raised once the server is known."""
        return self._frames.limit

    @frame_limit.setter
    def frame_limit(self, limit: int) -> None:
        self._frames.limit = limit

    async def open(
        self,
        host: str,
        port: int,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        dial: Dial | None = None,
    ) -> None:
        """Connect within `timeout_s`, with TLS where there is a context; raises ConnectionLost.

        A Unix socket that `dial` returns is used as it is, without TLS.
        """
        loop = asyncio.get_running_loop()
        self._is_tls = tls is not None
        try:
            async with asyncio.timeout(timeout_s):
                dialed = None if dial is None else await dial(host, port)
                if dialed is not None:
                    await loop.create_unix_connection(lambda: self, sock=dialed)
                    return
                await loop.create_connection(
                    lambda: self, host, port, ssl=tls, server_hostname=host if tls else None
                )
        except ssl.SSLCertVerificationError as problem:
            raise ConnectionLost(
                f"{host}:{port}: the server's certificate is not trusted: {problem.verify_message}"
            ) from problem
        except TimeoutError as problem:
            raise ConnectionLost(
                f"{host}:{port}: no connection within {timeout_s:g} s"
            ) from problem
        except (ssl.SSLError, ConnectionResetError) as problem:
            reason = str(problem) or "the server closed the connection"
            if tls is not None:
                reason = f"no TLS handshake, is this a listener of TLS? {reason}"
            raise ConnectionLost(f"{host}:{port}: {reason}") from problem
        except OSError as problem:
            raise ConnectionLost(f"{host}:{port}: {describe_os_error(problem)}") from problem

    def send(self, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write whole frames; ConnectionLost when the connection is gone."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost(CLOSED_HERE)
        self._transport.writelines(buffers)

    def keep_frame(self, part: memoryview) -> memoryview:
        """Return a part of the frame of this callback that stays valid, without a copy if large."""
        before = self._frames.capacity
        if len(part) > LARGE_BYTES:
            self._frames.release()
        return part if self._frames.capacity < before else memoryview(bytes(part))

    def close(self) -> None:
        """Close when what was written has been sent; then `on_lost` is called."""
        if self._transport is not None:
            self._reason = self._reason or ConnectionLost(CLOSED_HERE)
            self._transport.close()

    def abort(self) -> None:
        """Close at once: a peer that answers no more may take nothing more, either."""
        if self._transport is not None:
            self._reason = self._reason or ConnectionLost(CLOSED_HERE)
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until a closed connection has ended; cut one whose peer does not answer in time.

        A loop that stops before leaves the socket open, with a ResourceWarning.
        """
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._ended.wait()
        except TimeoutError:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport: small requests must not wait for Nagle."""
        # A cast, because uvloop's transport is no subclass.
        self._transport = transport = cast("asyncio.Transport", transport)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in {socket.AF_INET, socket.AF_INET6}:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE:
                if hasattr(socket, name):  # not every system has them all
                    raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def pause_writing(self) -> None:
        """The transport holds more than it should."""
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """It has room again."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def connection_lost(self, problem: Exception | None) -> None:
        """Report the end of the connection to the owner."""
        self.resume_writing()
        self._ended.set()
        if self._reason is None and not self._has_received:
            other = "another protocol" if self._is_tls else "another protocol or of TLS"
            self._reason = ConnectionLost(
                f"the server closed the connection without an answer, as a listener of {other} does"
            )
        self._on_lost(self._reason or problem or ConnectionLost("the server closed the connection"))

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Room to receive into."""
        return self._frames.get_buffer()

    def buffer_updated(self, size: int) -> None:
        """Hand on every frame that is whole now."""
        self._frames.received(size)
        try:
            while (frame := self._frames.next()) is not None:
                self._on_frame(frame)
        except WireError as problem:
            self._reason = problem
            if not self._has_received:
                self._reason = WireError(f"the answer is not of this protocol: {problem}")
            self.abort()
        except Exception as problem:
            # The owner cannot know which frames it has seen: every waiting request has to fail.
            log.exception("client.frame_failed")
            self._reason = ConnectionLost(f"a frame could not be processed: {problem!r}")
            self.abort()
        self._has_received = True
