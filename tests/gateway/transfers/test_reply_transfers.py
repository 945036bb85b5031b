"""Large replies that a thread sends: their order, slow peers, and what stays with the loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import wraps

import pytest
import uvloop

from tests.gateway.fakes import frame
from tests.waiting import wait_on_loop
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.reply_queue import BufferedReply, PipelinedConnection
from trilogue.gateway.stream import Limits, Stream
from trilogue.gateway.transfers import reply_transfers

LARGE = os.urandom(6 << 20)
MORE_THAN_SOCKETS_HOLD = os.urandom(20 << 20)
LIMITS = Limits()


def on_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Run a test on the event loop that a node has."""

    @wraps(test)
    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test())

    return run


class Session(PipelinedConnection):
    """Each frame is a list of replies, by their letters in `replies`."""

    def __init__(self, replies: dict[bytes, bytes]) -> None:
        super().__init__()
        self.replies = replies
        self.was_closed = asyncio.Event()

    def frame(self, frame: memoryview) -> bool:
        body = self.replies[bytes(frame)]
        half = len(body) // 2
        self.queue(BufferedReply([body[:half], memoryview(body)[half:]]))
        return True

    def end_iteration(self) -> None:
        self.flush()

    def closed(self) -> None:
        super().closed()
        self.was_closed.set()


class Rig:
    def __init__(self, replies: dict[bytes, bytes]) -> None:
        self.memory = ConnectionMemory()
        self.session = Session(replies)
        self.stream = Stream(
            self.session,
            LIMITS,
            call_soon=asyncio.get_running_loop().call_soon,
            on_gone=lambda _stream: None,
            memory=self.memory,
        )
        self.transfers = 0
        self.sockets: list[socket.socket] = []  # of transfers
        start = self.memory.transfers.start

        def count(connection: socket.socket, *arguments) -> None:
            self.transfers += 1
            self.sockets.append(connection)
            start(connection, *arguments)

        self.memory.transfers.start = count  # type: ignore[method-assign]


@asynccontextmanager
async def opened(
    replies: dict[bytes, bytes], threads: int = 1
) -> AsyncIterator[tuple[Rig, asyncio.StreamReader, asyncio.StreamWriter]]:
    near, far = socket.socketpair()
    rig = Rig(replies)
    with ThreadPoolExecutor(1) as executor:
        rig.memory.transfers.open(executor, threads)
        near.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: rig.stream, sock=near)
        reader, writer = await asyncio.open_unix_connection(sock=far)
        try:
            yield rig, reader, writer
        finally:
            writer.close()
            await rig.session.was_closed.wait()


@on_loop
async def test_a_large_reply_is_sent_by_a_thread_and_keeps_its_place():
    replies = {b"a": b"first", b"L": LARGE, b"z": b"last"}
    async with opened(replies) as (rig, reader, writer):
        writer.write(frame(b"L") + frame(b"a") + frame(b"L") + frame(b"z"))

        received = await reader.readexactly(2 * len(LARGE) + 9)
        await wait_on_loop(lambda: not rig.session.in_flight)

        assert received == LARGE + b"first" + LARGE + b"last"
        assert rig.transfers
        assert rig.memory.unsent.size_bytes == 0
        assert rig.memory.transfers.has_room
        assert all(each.fileno() < 0 for each in rig.sockets), "a descriptor is left"


@on_loop
async def test_without_a_free_thread_the_loop_sends():
    async with opened({b"L": LARGE}, threads=0) as (rig, reader, writer):
        writer.write(frame(b"L"))

        assert await reader.readexactly(len(LARGE)) == LARGE
        assert not rig.transfers


@on_loop
async def test_a_small_reply_is_sent_by_the_loop():
    async with opened({b"S": LARGE[: 1 << 20]}) as (rig, reader, writer):
        writer.write(frame(b"S"))

        assert await reader.readexactly(1 << 20) == LARGE[: 1 << 20]
        assert not rig.transfers


@on_loop
async def test_the_rest_for_a_slow_peer_is_sent_by_the_loop():
    async with opened({b"M": MORE_THAN_SOCKETS_HOLD, b"z": b"last"}) as (rig, reader, writer):
        writer.write(frame(b"M") + frame(b"z"))
        await wait_on_loop(lambda: rig.stream.write_paused)  # the thread has given up
        assert rig.memory.transfers.has_room
        held_bytes = rig.memory.unsent.size_bytes

        received = await reader.readexactly(len(MORE_THAN_SOCKETS_HOLD) + 4)

        assert received == MORE_THAN_SOCKETS_HOLD + b"last"
        assert rig.transfers == 1
        assert 0 < held_bytes < len(MORE_THAN_SOCKETS_HOLD) + (2 << 20)
        assert rig.memory.unsent.size_bytes == 0


@on_loop
async def test_a_connection_that_is_cut_ends_its_transfer():
    async with opened({b"M": MORE_THAN_SOCKETS_HOLD}) as (rig, _, writer):
        with pytest.MonkeyPatch.context() as patch:
            for limit in ("STALL_MS", "LIMIT_MS"):
                patch.setattr(reply_transfers, limit, 3_600_000)
            writer.write(frame(b"M"))
            await wait_on_loop(lambda: rig.transfers)
            await asyncio.sleep(0.05)  # the thread has begun, and waits for the peer

        rig.stream.abort("connection.cut")
        await wait_on_loop(lambda: rig.memory.transfers.has_room)

        assert rig.session.is_gone
        assert all(each.fileno() < 0 for each in rig.sockets), "a descriptor is left"
        assert rig.memory.unsent.size_bytes == 0


@on_loop
async def test_a_thread_writes_nothing_to_connections_that_are_encrypted_or_have_bytes_to_send():
    async with opened({}) as (rig, _, _writer):
        own = rig.stream.duplicate_socket()
        assert own is not None
        own.close()
        transport = rig.stream.writer.transport
        assert transport is not None

        class Encrypted:
            is_closing = transport.is_closing
            get_write_buffer_size = transport.get_write_buffer_size

            def get_extra_info(self, name, default=None):
                return "context" if name == "sslcontext" else transport.get_extra_info(name)

        class Full:
            is_closing = transport.is_closing
            get_extra_info = transport.get_extra_info

            def get_write_buffer_size(self):
                return 1

        for other in (Encrypted(), Full()):
            rig.stream.writer.transport = other  # type: ignore[assignment]
            assert rig.stream.duplicate_socket() is None
        rig.stream.writer.transport = transport
