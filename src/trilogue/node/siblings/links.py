"""Sends requests to the other nodes: one connection to each, made when needed.

A request that cannot be sent, or whose connection ends before its answer, gets NotReady: the caller
tries again, and it depends on the request what that means.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from trilogue.broker.errors import NotReady
from trilogue.broker.node_requests import NodeReply, NodeRequest
from trilogue.broker.promise import Promise
from trilogue.node.siblings.frames import (
    FRAME_MAX,
    Hello,
    decode_answer,
    decode_outcome,
    make_frame,
    read_frame,
    socket_address,
)

log = logging.getLogger(__name__)

UNANSWERED_MAX: Final = 20_000  # requests to one node
CONNECT_LIMIT_S: Final = 2.0
PAUSE_S: Final = 0.05  # after a connection that failed

Connect = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class NodeLinks:
    """The connections of this node to the others."""

    def __init__(
        self, node_id: int, node_epoch: int, connect: Connect, answer_s: float | None = None
    ) -> None:
        """`connect` raises OSError; a node is given up that answers nothing for `answer_s`."""
        self._node_id = node_id
        self._node_epoch = node_epoch
        self._connect = connect
        self._answer_s = answer_s
        self._links: dict[int, PeerLink] = {}
        self._connections = count(1)
        self._is_closed = False

    def send(self, node_id: int, request: NodeRequest) -> Promise[NodeReply]:
        """Send a request; the promise has the answer, or NotReady."""
        if self._is_closed or node_id == self._node_id:
            return Promise.rejected(NotReady(f"node {node_id} is not reached"))
        link = self._links.get(node_id)
        if link is None:
            link = self._links[node_id] = PeerLink(self._introduce, node_id, self._answer_s)
        return link.send(request)

    async def _introduce(self, node_id: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect and send the first frame. Raises OSError."""
        reader, writer = await self._connect(node_id)
        writer.write(make_frame(0, Hello(self._node_id, self._node_epoch, next(self._connections))))
        return reader, writer

    async def close(self) -> None:
        """Close the connections; requests without an answer get NotReady."""
        self._is_closed = True
        for link in self._links.values():
            await link.close()


class SiblingLinks(NodeLinks):
    """The connections to the other nodes of one machine."""

    def __init__(self, directory: Path, node_id: int, node_epoch: int) -> None:
        super().__init__(node_id, node_epoch, self._connect_socket)
        self._directory = directory

    async def _connect_socket(
        self, node_id: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            ours.setblocking(False)
            with socket_address(self._directory, node_id) as address:
                await loop.sock_connect(ours, address)
            return await asyncio.open_unix_connection(sock=ours, limit=FRAME_MAX)
        except BaseException:
            ours.close()
            raise


class PeerLink:
    """The connection to one node."""

    def __init__(self, connect: Connect, node_id: int, answer_s: float | None) -> None:
        self._connect = connect
        self._node_id = node_id
        self._answer_s = answer_s
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = count(1)
        self._unsent: list[bytes] = []
        self._unanswered: dict[int, Promise[NodeReply]] = {}
        self._task: asyncio.Task[None] | None = None

    def send(self, request: NodeRequest) -> Promise[NodeReply]:
        """Send a request now, or when the connection is made that begins now."""
        if len(self._unanswered) >= UNANSWERED_MAX:
            return Promise.rejected(NotReady(f"node {self._node_id} has too many requests"))
        number, promise = next(self._numbers), Promise[NodeReply]()
        self._unanswered[number] = promise
        frame = make_frame(number, request)
        if self._writer is None:
            self._unsent.append(frame)
            if self._task is None:
                self._task = asyncio.create_task(self._run())
        else:
            self._writer.write(frame)
        return promise

    async def _run(self) -> None:
        """Connect, send what waits, and settle the answers until the connection ends."""
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                reader, writer = await self._connect(self._node_id)
        except (OSError, TimeoutError) as error:
            log.info("sibling.unreachable", extra={"node": self._node_id, "reason": str(error)})
            await asyncio.sleep(PAUSE_S)
        else:
            try:
                await self._receive(reader, writer)
            except TimeoutError:
                log.info("sibling.silent", extra={"node": self._node_id})
            except (OSError, asyncio.IncompleteReadError):
                pass
            except (ValueError, msgspec.DecodeError) as error:
                log.warning("sibling.bad_bytes", extra={"reason": str(error)})
            finally:
                self._writer = None
                writer.transport.abort()
        self._task = None
        self._fail()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        unsent, self._unsent = self._unsent, []
        writer.writelines(unsent)
        self._writer = writer
        while True:
            number, payload = await self._read(reader)
            answer = decode_answer(payload)
            error = decode_outcome(answer)
            promise = self._unanswered.pop(number, None)
            if promise is None:
                continue
            if error is None:
                promise.set_result(answer.found)
            else:
                promise.set_error(error)

    async def _read(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        """Return the next frame. TimeoutError if requests wait for it for too long."""
        if self._answer_s is None:
            return await read_frame(reader)
        reading = asyncio.ensure_future(read_frame(reader))
        try:
            while True:
                waiting = next(iter(self._unanswered), None)
                if (await asyncio.wait([reading], timeout=self._answer_s))[0]:
                    return reading.result()
                if waiting is not None and waiting in self._unanswered:
                    raise TimeoutError
        finally:
            reading.cancel()

    def _fail(self) -> None:
        """Settle what has no answer; the callbacks may send again."""
        unanswered, self._unanswered = self._unanswered, {}
        self._unsent = []
        for promise in unanswered.values():
            promise.set_error(NotReady(f"node {self._node_id} has not answered"))

    async def close(self) -> None:
        """End the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._fail()
