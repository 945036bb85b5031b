"""Serves requests of other nodes; those of one machine connect by a socket of its file system.

Requests of a node are handled in their order, and none of an earlier connection once a later one
has begun: a node that connects again may send again what had no answer, and the first copy must not
be handled after the second.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from trilogue.broker.node_requests import NodeReply, NodeRequest
from trilogue.broker.promise import Promise
from trilogue.node.siblings.frames import (
    Hello,
    decode_hello,
    decode_request,
    encode_outcome,
    is_same_user,
    make_frame,
    read_frame,
    socket_address,
)

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 1_024
HELLO_LIMIT_S: Final = 5.0

Handle = Callable[[int, NodeRequest], Promise[NodeReply]]


class NodeConnections:
    """The connections of other nodes, and their requests."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._writers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._newest: dict[int, tuple[tuple[int, int], asyncio.StreamWriter]] = {}

    @property
    def is_full(self) -> bool:
        """Whether there are so many connections that another one is closed at once."""
        return len(self._writers) >= CONNECTIONS_MAX

    async def serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Serve a connection until it ends.

        `check` proves who connects, within the time that the first frame has, or raises OSError.
        """
        task = asyncio.current_task()
        assert task is not None
        self._writers[task] = writer
        try:
            async with asyncio.timeout(HELLO_LIMIT_S):
                if check is not None:
                    await check()
                _, payload = await read_frame(reader)
            await self._answer_requests(decode_hello(payload), reader, writer)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the other node has ended, or connects again
        except (ValueError, msgspec.DecodeError) as error:
            log.warning("sibling.bad_bytes", extra={"reason": str(error)})
        finally:
            del self._writers[task]
            writer.transport.abort()

    def end_all(self) -> list[asyncio.Task[None]]:
        """Close all connections; return their tasks, which end."""
        for writer in self._writers.values():
            writer.transport.abort()  # streams of Python 3.11 report a task that is cancelled
        return list(self._writers)

    async def close(self) -> None:
        """Close all connections, and wait until that is done."""
        await asyncio.gather(*self.end_all(), return_exceptions=True)

    async def _answer_requests(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not self._admit(hello, writer):
            return
        while True:
            number, payload = await read_frame(reader)
            if self._newest[hello.node_id][1] is not writer:
                return
            request = decode_request(payload)
            answered = self._handle(hello.node_id, request)
            answered.then(partial(_answer, writer, number))
            await writer.drain()

    def _admit(self, hello: Hello, writer: asyncio.StreamWriter) -> bool:
        """Let a later connection of a node take the place of an earlier one."""
        order = hello.node_epoch, hello.connection
        newest = self._newest.get(hello.node_id)
        if newest is not None:
            if order <= newest[0]:
                return False
            newest[1].transport.abort()
        self._newest[hello.node_id] = order, writer
        return True


class SiblingServer:
    """The socket of this node, and the connections of the others."""

    def __init__(self, directory: Path, node_id: int, handle: Handle) -> None:
        self._directory = directory
        self._node_id = node_id
        self._connections = NodeConnections(handle)
        self._server: asyncio.Server

    async def open(self) -> None:
        """Listen; an earlier process of this node has left its socket. Raises OSError."""
        listening = self._bind()
        try:
            self._server = await asyncio.start_unix_server(self._accept, sock=listening)
        except BaseException:
            listening.close()
            raise

    def _bind(self) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            with socket_address(self._directory, self._node_id) as address:
                Path(address).unlink(missing_ok=True)
                listening.bind(address)
                Path(address).chmod(0o600)
        except BaseException:
            listening.close()
            raise
        return listening

    async def close(self) -> None:
        """Listen no more, and close the connections."""
        self._server.close()
        await self._connections.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        if self._connections.is_full or not is_same_user(peer):
            writer.transport.abort()
            return
        await self._connections.serve(reader, writer)


def _answer(writer: asyncio.StreamWriter, number: int, answered: Promise[NodeReply]) -> None:
    if not writer.transport.is_closing():
        writer.write(make_frame(number, encode_outcome(answered)))
