"""One WebSocket of the HTTP listeners: uvicorn's protocol within the limits of the node.

uvicorn reads no further message before the application has taken the last one. What it does not
bound is the number of WebSockets, the memory of messages that came in part, and a peer that does
not read: they are counted here (gateway/memory_budget.py), and `send` returns when the peer has
read most of a message, or closes the connection after `piece_s`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any, Final

from starlette.types import Message
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import BytesMessage, RejectConnection, Request, TextMessage

from trilogue.gateway.http.connection_limits import HttpLimits
from trilogue.gateway.http.entry_memory import SocketEntryMemory
from trilogue.gateway.http.peer_memory import PeerMemory
from trilogue.gateway.http.received_pieces import ReceivedPieces
from trilogue.gateway.http.request_limits import CERTIFICATE, ENTRY_MEMORY
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.socket_acceptor import descriptor_end

log = logging.getLogger(__name__)
protocol_log = logging.getLogger(f"{__name__}.protocol")
protocol_log.setLevel(logging.WARNING)  # at INFO it has paths with their queries, and so tokens

PING_S: Final = 60.0
PONG_S: Final = 240.0  # a client that works on a message for long answers no ping meanwhile
SPARE_DESCRIPTORS: Final = 128  # kept for files, and for the other listeners
SMALL_BYTES: Final = 16 << 10  # of a message, for which none waits


class WebSockets:
    """All WebSockets of a server: their number, by address, and what they hold of its memory."""

    def __init__(self, limits: HttpLimits, memory: ConnectionMemory) -> None:
        self.limits = limits
        self.memory = memory
        self.count = 0
        self._by_address: Counter[str] = Counter()
        self._descriptor_end = descriptor_end(SPARE_DESCRIPTORS)

    def add(self, address: str, descriptor: int) -> str:
        """Count one more, and return why it is too many; "" if it is not."""
        self.count += 1
        self._by_address[address] += 1
        if self.count > self.limits.websockets or descriptor >= self._descriptor_end:
            return "listener.full"
        if self._by_address[address] > self.limits.websockets_per_address:
            return "listener.address_full"
        return ""

    def remove(self, address: str) -> None:
        """Count one less."""
        self.count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


class WebSocketConnection(WSProtocol):
    """One WebSocket; `websockets` is set by the server that makes it."""

    websockets: WebSockets

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the WebSocket."""
        super().connection_made(transport)
        self.logger = protocol_log
        self.address = str(self.client[0]) if self.client else ""
        raw = transport.get_extra_info("socket")
        self._refused = self.websockets.add(self.address, -1 if raw is None else raw.fileno())
        memory = self.websockets.memory
        self._received = PeerMemory(
            memory.received, self.address, transport, "connection.stalled_message"
        )
        self._unsent = PeerMemory(memory.unsent, self.address, transport, "connection.unread")
        self._entries = SocketEntryMemory(memory, self.address, transport)
        self._taken_bytes = 0  # of the message that the application works on
        self._pieces = ReceivedPieces(
            transport,
            memory,
            super().data_received,
            address=self.address,
            is_paused=lambda: self.read_paused,
            is_unread=lambda: not self.writable.is_set(),
            is_ready=self.writable.is_set,  # each ping of the peer has a reply
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        self.websockets.remove(self.address)
        self.websockets.memory.closed.add(self)
        self._pieces.close()
        self._received.release()
        self._unsent.release()
        self._entries.close()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse in pieces: thousands of frames in one read are work of many loop iterations."""
        self._pieces.add(data)

    def resume_writing(self) -> None:
        """The peer reads again: go on."""
        super().resume_writing()
        self._pieces.parse_on()

    def handle_connect(self, event: Request) -> None:
        """Begin, or answer 503 where there are too many."""
        if self._refused:
            log.warning(self._refused, extra={"listener": "http", "address": self.address})
            self.handshake_complete = self.close_sent = True
            self.transport.write(self.conn.send(RejectConnection(status_code=503, headers=[])))
            self.transport.close()
            return
        super().handle_connect(event)

    def handle_message(self, event: TextMessage | BytesMessage) -> None:
        """Take a part of a message, and count it."""
        length = self.buffer.length
        super().handle_message(event)
        if self.buffer.length:
            self._received.steps = (self._received.steps or 0) + 1
        else:  # it is whole: the application takes it soon
            self._received.steps = None
            self._taken_bytes = length + len(event.data)
        self._count_received()

    def _count_received(self) -> None:
        size = self.buffer.length + self._taken_bytes
        self._received.resize(size if size > SMALL_BYTES and not self.disconnected else 0)

    async def receive(self) -> Any:
        """Return the next event; the message before it is worked on no more."""
        if self._taken_bytes and self.queue.empty():
            self._taken_bytes = 0
            self._count_received()
        event = await super().receive()
        self._pieces.keep_held()
        return event

    async def run_asgi(self) -> None:
        """Run the application; its state has the memory for entries and a certificate."""
        self.scope["state"][ENTRY_MEMORY] = self._entries
        if self.scheme == "wss":
            self.scope["state"][CERTIFICATE] = self.transport.get_extra_info("peercert")
        await super().run_asgi()

    async def send(self, message: Message) -> None:  # type: ignore[override]
        """Send an event; returns when the peer has read most of it, and closes if it does not."""
        text = message.get("text") or ""
        size = len(text) if message["type"] == "websocket.send" else 0
        is_counted = self._entries.begin_sending(size)
        try:
            async with asyncio.timeout(self.websockets.limits.piece_s):
                if size > SMALL_BYTES and not is_counted:
                    await self._unsent.budget.reserve(self._unsent, size)
                await super().send(message)  # type: ignore[arg-type]
                if not self.writable.is_set():
                    self._unsent.steps = 0
                    await self.writable.wait()
        except TimeoutError:
            self._unsent.evict()
        finally:
            self._unsent.steps = None
            if not self.disconnected:
                self._unsent.resize(0)
