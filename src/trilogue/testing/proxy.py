"""Stands between clients and a listener: records requests and applies faults to them.

    client ──► proxy: split, describe, record ──► listener of the broker
                 └── a fault: an error response, a delay, a cut

The broker advertises the proxy's address, so clients come back through it. Responses pass as whole
frames, unread (`reply_order.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from msgspec.structs import replace

from trilogue.gateway.socket_acceptor import ConnectionTasks, SocketAcceptor
from trilogue.testing.faults import Action, Fault, FaultTable, Request
from trilogue.testing.reply_order import ReplyOrder

log = logging.getLogger(__name__)

READ_BYTES = 64 << 10


class RequestReader(Protocol):
    """Reads the frames of a protocol."""

    protocol: str
    replies_by_request: bool  # replies come in the order of requests

    def split(self, received: bytearray) -> Iterator[bytes]:
        """Take the complete frames, of either side, away from the front of what was received."""

    def has_reply(self, frame: bytes, /) -> bool:
        """Whether the broker replies to this frame; True where replies come in any order."""

    def describe(self, frame: bytes) -> Request | None:
        """Return the request of a frame; None for one that is none."""

    def encode_error(self, frame: bytes, error: str) -> bytes:
        """Return a whole frame that refuses the request."""


class ListenerProxy:
    """One address for clients. `make_reader` returns the reader of a new connection.

    `harm_broker` does what a fault does to the broker itself, a crash or a full disk.
    """

    def __init__(
        self,
        faults: FaultTable,
        make_reader: Callable[[], RequestReader],
        harm_broker: Callable[[Fault], None],
    ) -> None:
        self._faults = faults
        self._make_reader = make_reader
        self._harm_broker = harm_broker
        self._target: tuple[str, int] | None = None
        self._acceptor: SocketAcceptor
        self._connections = ConnectionTasks(self._serve)

    def open(self) -> tuple[str, int]:
        """Listen on a free port of this machine; return host and port."""
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        self._acceptor = SocketAcceptor("proxy", listening, self._connections.begin)
        host, port = listening.getsockname()
        return str(host), int(port)

    def connect_to(self, target: tuple[str, int] | None) -> None:
        """Pass connections on to this listener, or refuse them."""
        self._target = target

    def cut_connections(self) -> None:
        """Close all connections."""
        self._connections.cancel()

    async def close(self) -> None:
        """Close everything."""
        self._acceptor.close()
        self._connections.cancel()
        await self._connections.wait()

    async def _serve(self, accepted: socket.socket, _address: str) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted)
        try:
            if self._target is not None:
                with contextlib.suppress(OSError):
                    await self._connect(self._target, reader, writer)
        finally:
            writer.transport.abort()

    async def _connect(
        self,
        target: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        from_broker, to_broker = await asyncio.open_connection(*target)
        requests = self._make_reader()
        replies = ReplyOrder(writer, requests.split, by_request=requests.replies_by_request)
        try:
            works = [
                asyncio.create_task(
                    self._pass_requests(requests, reader, to_broker, writer, replies)
                ),
                asyncio.create_task(_pass_replies(from_broker, replies)),
            ]
            try:
                await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for work in works:
                    work.cancel()
                for outcome in await asyncio.gather(*works, return_exceptions=True):
                    if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
                        log.error("proxy.failed", exc_info=outcome)
            to_broker.close()  # when it has the requests that the client sent before its end
            await to_broker.wait_closed()
        finally:
            to_broker.transport.abort()

    async def _pass_requests(
        self,
        requests: RequestReader,
        reader: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
        to_client: asyncio.StreamWriter,
        replies: ReplyOrder,
    ) -> None:
        received = bytearray()
        number = self._faults.next_connection()
        while data := await reader.read(READ_BYTES):
            received += data
            for frame in requests.split(received):
                request = requests.describe(frame)
                fault = None
                if request is not None:
                    request = replace(request, connection=number, received_at=time.monotonic())
                    fault = self._faults.record(request)
                has_reply = requests.has_reply(frame)
                if fault is not None and fault.action is Action.ERROR:
                    if not has_reply:
                        return  # as a broker does that cannot tell the client
                    await replies.insert(requests.encode_error(frame, fault.error))
                    continue
                if fault is not None and not await self._apply(fault, frame, to_broker, to_client):
                    return
                if has_reply:
                    replies.expect()
                to_broker.write(frame)
            await to_broker.drain()

    async def _apply(
        self,
        fault: Fault,
        frame: bytes,
        to_broker: asyncio.StreamWriter,
        to_client: asyncio.StreamWriter,
    ) -> bool:
        """Do what a fault does before its frame is passed on; False ends the connection instead."""
        match fault.action:
            case Action.DELAY:
                await asyncio.sleep(fault.seconds)
                return True
            case Action.DROP_RESPONSE:
                to_broker.write(frame)
                await to_broker.drain()
                to_client.transport.abort()
                await asyncio.sleep(fault.seconds)
            case Action.FULL_DISK:
                self._harm_broker(fault)
                return True
            case Action.CRASH:
                self._harm_broker(fault)
        return False  # also for a cut


async def _pass_replies(reader: asyncio.StreamReader, replies: ReplyOrder) -> None:
    while data := await reader.read(READ_BYTES):
        await replies.pass_on(data)
