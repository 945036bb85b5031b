"""TLS over a connection's transport, with little memory for each connection.

    socket ──► buffer of all connections ──► incoming BIO ──► get_buffer, buffer_updated
    socket ◄── transport ◄── outgoing BIO ◄── write, writelines

The event loop's own TLS keeps a quarter of a mebibyte for reading in each connection, and as much
in its BIOs once a peer has sent a burst: three thousand peers that had not logged in took 3.3 GiB.
Here bytes are received into one buffer of all connections, and pass the BIOs in pieces of a
record's size, larger ones once a connection has carried a mebibyte. What a peer has sent while its
protocol does not read stays in the kernel, but for one such piece.

Decrypting counts as time of the loop iteration (docs/decisions/0144): a connection whose bytes come
later in it waits for another one. A peer that sends records without data (KeyUpdates), or does not
read what answers them, is cut (docs/decisions/0157).

The protocol is made when the handshake has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from trilogue.gateway.frame_dispatcher import IterationBudget

log = logging.getLogger(__name__)

# Through a BIO at a time, which keeps the largest size that it had: 1 KiB, and more once a
# connection has carried more in both directions.
FIRST_PIECE_BYTES: Final = 1 << 10
PIECE_BYTES: Final = 16 << 10
PIECE_AFTER_BYTES: Final = 64 << 10
LARGE_PIECE_BYTES: Final = 64 << 10  # a fifth less CPU for each byte
LARGE_AFTER_BYTES: Final = 1 << 20
NEVER: Final = 1 << 62
LARGE_MAX: Final = 256  # connections of a node with large pieces: 200 KiB each
RECEIVED_BYTES: Final = LARGE_PIECE_BYTES  # of the buffer that all connections use in turn
# What a peer may send beyond the data that it sends: a record that is not whole yet has 16.3 KiB. A
# record of data may be padded (RFC 8446, 5.4).
CONTROL_BYTES_MAX: Final = 18 << 10
PADDING_BYTES: Final = 4 << 10
UNREAD_ANSWERS_BYTES_MAX: Final = 16 << 10

Bytes = bytes | bytearray | memoryview


class TlsMemory:
    """What the connections of a node share."""

    def __init__(self, iterations: IterationBudget | None = None) -> None:
        self.iterations = iterations or IterationBudget()
        self.received = memoryview(bytearray(RECEIVED_BYTES))
        self.large = 0  # connections with large pieces

    def add_large(self) -> bool:
        """Count one more connection with large pieces; False: there are too many."""
        if self.large >= LARGE_MAX:
            return False
        self.large += 1
        return True


class TlsConnection(asyncio.BufferedProtocol):
    """The TLS of one accepted connection; `handshake` ends with its handshake.

    The future has an OSError (SSLError is one) if the handshake fails.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        memory: TlsMemory,
    ) -> None:
        self.handshake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._memory = memory
        self._received = memory.received
        self._make_protocol = make_protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._lower: asyncio.Transport
        self._protocol: asyncio.BaseProtocol | None = None
        self._buffered: asyncio.BufferedProtocol | None = None
        self._iterations = memory.iterations
        self._left = b""  # received, and not in the BIO yet: the protocol does not read, or others
        self._piece_bytes = FIRST_PIECE_BYTES
        self._carried_bytes = 0
        self._grows_at_bytes = PIECE_AFTER_BYTES  # carried
        self._control_bytes = 0  # received beyond data
        self._unread_answers_bytes = 0  # of TLS itself, while the peer does not read
        self._is_lower_paused = False
        self._is_lower_full = False
        self._is_scheduled = False
        self._is_deferred = False
        self._is_lost = False
        self.is_paused = False
        self.is_closing = False

    # ---- called by the transport below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; the client speaks first."""
        self._lower = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer of all connections: it is read at once, by `buffer_updated`."""
        del sizehint
        return self._received[: self._piece_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt what came, as far as the protocol reads."""
        if self.is_closing:
            return
        if self._protocol is None:
            self._incoming.write(self._received[:nbytes])
            self._shake_hands()
        else:
            self._feed(self._received[:nbytes])

    def eof_received(self) -> bool:
        """Close: the peer has shut down its side."""
        if self._protocol is None:
            self._fail(ConnectionResetError("the client closed the connection"))
        else:
            self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: so it is for the protocol."""
        self.is_closing = self._is_lost = True
        if self._piece_bytes == LARGE_PIECE_BYTES:
            self._memory.large -= 1
            self._piece_bytes = PIECE_BYTES
        protocol, self._protocol, self._buffered = self._protocol, None, None
        self._left = b""
        if not self.handshake.done():
            self.handshake.set_exception(
                exc if isinstance(exc, OSError) else ConnectionResetError("the connection ended")
            )
        if protocol is not None:
            protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer does not read."""
        self._is_lower_full = True
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._is_lower_full = False
        self._unread_answers_bytes = 0
        if self._protocol is not None:
            self._protocol.resume_writing()

    # ---- the handshake

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as problem:
            self._flush()  # the alert
            self._fail(problem)
            return
        self._flush()
        protocol = self._make_protocol()
        del self._make_protocol
        self.set_protocol(protocol)
        protocol.connection_made(TlsTransport(self))
        if not self.handshake.done():
            self.handshake.set_result(None)
        self._read()

    def _fail(self, problem: OSError) -> None:
        self.is_closing = True
        if not self.handshake.done():
            self.handshake.set_exception(problem)
        self._lower.close()

    # ---- reading

    def _feed(self, received: Bytes) -> None:
        """Decrypt in pieces; what is not decrypted now is kept, and no more is received."""
        step = self._piece_bytes  # it may grow meanwhile
        for at in range(0, len(received), step):
            if self.is_closing:
                return
            if self.is_paused or self._iterations.is_used_up():
                self._left += bytes(received[at:])
                break
            piece = received[at : at + step]
            self._control_bytes += len(piece)
            self._incoming.write(piece)
            self._read()
        if self._left and not self.is_paused and not self._is_deferred:
            self._is_deferred = True
            self._iterations.defer(self._continue_deferred)
        if not self._is_lower_paused and (self._left or (self.is_paused and self.kept_bytes)):
            self._is_lower_paused = True
            self._lower.pause_reading()

    def _continue_deferred(self) -> None:
        self._is_deferred = False
        if not self.is_closing:
            self._continue()

    def _count(self, size: int) -> None:
        """Pass larger pieces once the connection has carried enough to be worth their memory."""
        self._carried_bytes += size
        if self._carried_bytes >= self._grows_at_bytes:
            self._grow_pieces()

    def _grow_pieces(self) -> None:
        if self._carried_bytes < LARGE_AFTER_BYTES:
            self._piece_bytes, self._grows_at_bytes = PIECE_BYTES, LARGE_AFTER_BYTES
            return
        self._piece_bytes = PIECE_BYTES
        self._grows_at_bytes = self._carried_bytes + LARGE_AFTER_BYTES
        if self._memory.add_large():
            self._piece_bytes, self._grows_at_bytes = LARGE_PIECE_BYTES, NEVER

    def _read(self) -> None:
        """Give the protocol what can be decrypted, until it pauses."""
        tls, incoming = self._tls, self._incoming
        try:
            while not self.is_paused and not self.is_closing:
                if not incoming.pending and not tls.pending():
                    return
                if not self._read_record(tls):
                    self._end()
                    return
        except ssl.SSLWantReadError:
            self._flush_answers()
        except ssl.SSLZeroReturnError:
            self._end()
        except ssl.SSLError as problem:
            self._cut(str(problem))

    def _flush_answers(self) -> None:
        """Send what TLS itself answers, to KeyUpdates; cut a peer that is only about these."""
        if self._is_lower_full:
            self._unread_answers_bytes += self._outgoing.pending
        if self._control_bytes > CONTROL_BYTES_MAX:
            self._cut("records without data")
        elif self._unread_answers_bytes > UNREAD_ANSWERS_BYTES_MAX:
            self._cut("the answers to KeyUpdates are not read")
        else:
            self._flush()

    def _cut(self, problem: str) -> None:
        address = self._lower.get_extra_info("peername")
        log.warning(
            "connection.bad_tls",
            extra={"address": address[0] if address else "", "problem": problem},
        )
        self.abort()

    def _read_record(self, tls: ssl.SSLObject) -> int:
        """Return the number of bytes that the protocol got; 0: the peer has ended."""
        if self._buffered is not None:
            room = self._buffered.get_buffer(-1)
            count: int = tls.read(len(room), room)  # type: ignore[arg-type, assignment]  # a buffer
            self._count_data(count)
            if count:
                self._buffered.buffer_updated(count)
            return count
        assert isinstance(self._protocol, asyncio.Protocol)
        data = tls.read(PIECE_BYTES)
        self._count_data(len(data))
        if data:
            self._protocol.data_received(data)
        return len(data)

    def _count_data(self, size: int) -> None:
        """Count decrypted bytes, and what came around them as theirs."""
        self._count(size)
        self._control_bytes = max(0, self._control_bytes - size - PADDING_BYTES)

    def _end(self) -> None:
        """The peer sends no more: as the protocol wants, in any case the end of the connection."""
        if self._protocol is not None and not self.is_closing:
            self._protocol.eof_received()  # type: ignore[attr-defined]
        self.close()

    def pause_reading(self) -> None:
        """Give the protocol nothing more."""
        self.is_paused = True

    def resume_reading(self) -> None:
        """Go on in another iteration of the loop."""
        self.is_paused = False
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._is_scheduled = False
        self._read()
        left, self._left = self._left, b""
        if left:
            self._feed(left)
        if self._is_lower_paused and not self.is_paused and not self.is_closing:
            self._is_lower_paused = False
            self._lower.resume_reading()

    # ---- writing

    def write(self, data: Bytes) -> None:
        """Encrypt and send; after `close` nothing is sent."""
        if self.is_closing:
            return
        view = memoryview(data).cast("B")
        self._count(len(view))
        step = self._piece_bytes
        try:
            for at in range(0, len(view), step):
                piece = view[at : at + step]
                while piece:
                    piece = piece[self._tls.write(piece) :]
                self._flush()
        except ssl.SSLError as problem:
            log.warning("connection.bad_tls", extra={"problem": str(problem)})
            self.abort()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._lower.write(self._outgoing.read())

    def close(self) -> None:
        """Close after all written bytes are sent, with the alert that ends TLS."""
        if self.is_closing:
            return
        self.is_closing = True
        with contextlib.suppress(ssl.SSLError):  # the peer has not answered: nothing waits for that
            self._tls.unwrap()
        self._flush()
        self._lower.close()

    def abort(self) -> None:
        """Close at once."""
        self.is_closing = True
        if hasattr(self, "_lower") and not self._is_lost:
            self._lower.abort()

    # ---- for the transport

    @property
    def kept_bytes(self) -> int:
        """Bytes that came and that the protocol has not read."""
        return self._incoming.pending + self._tls.pending() + len(self._left)

    @property
    def lower(self) -> asyncio.Transport:
        """The transport below."""
        return self._lower

    @property
    def protocol(self) -> asyncio.BaseProtocol | None:
        """The protocol above, until the connection is lost."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give this protocol all that comes from now on."""
        if not self._is_lost:
            self._protocol = protocol
            self._buffered = protocol if isinstance(protocol, asyncio.BufferedProtocol) else None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the TLS, or of the transport below."""
        if name == "peercert":
            return self._tls.getpeercert()
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        return self._lower.get_extra_info(name, default)


class TlsTransport(asyncio.Transport):
    """The transport of the protocol above."""

    __slots__ = ("_connection", "_lower", "get_write_buffer_size", "write")

    def __init__(self, connection: TlsConnection) -> None:
        super().__init__()
        self._connection = connection
        self._lower = connection.lower
        self.write = connection.write  # type: ignore[method-assign]
        self.get_write_buffer_size = self._lower.get_write_buffer_size  # type: ignore[method-assign]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection."""
        return self._connection.get_extra_info(name, default)

    def writelines(self, list_of_data: Iterable[Bytes]) -> None:
        """Encrypt and send; small buffers share records."""
        small: list[Bytes] = []
        size = 0
        for data in list_of_data:
            if size + len(data) > PIECE_BYTES and small:
                self.write(b"".join(small))
                small, size = [], 0
            if len(data) >= PIECE_BYTES:
                self.write(data)
            else:
                small.append(data)
                size += len(data)
        if small:
            self.write(b"".join(small))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the protocol pauses writing."""
        self._lower.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high limit."""
        return self._lower.get_write_buffer_limits()

    def pause_reading(self) -> None:
        """Give the protocol nothing more."""
        self._connection.pause_reading()

    def resume_reading(self) -> None:
        """Give the protocol what comes."""
        self._connection.resume_reading()

    def is_reading(self) -> bool:
        """Whether the protocol gets what comes."""
        return not self._connection.is_paused and not self._connection.is_closing

    def is_closing(self) -> bool:
        """Whether nothing is sent any more."""
        return self._connection.is_closing

    @property
    def kept_bytes(self) -> int:
        """Bytes that came and that the protocol has not read."""
        return self._connection.kept_bytes

    def can_write_eof(self) -> bool:
        """TLS ends both directions at once here."""
        return False

    def close(self) -> None:
        """Close after all written bytes are sent."""
        self._connection.close()

    def abort(self) -> None:
        """Close at once."""
        self._connection.abort()

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol above."""
        found = self._connection.protocol
        assert found is not None
        return found

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Leave the connection to another protocol, as a request for a WebSocket does."""
        self._connection.set_protocol(protocol)
