"""Listeners on real sockets: caps, exhaustion, slow peers, drain and close."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from contextlib import asynccontextmanager, suppress

import pytest

from tests.gateway.fakes import frame
from tests.node_ports import is_listening
from tests.waiting import wait_on_loop
from trilogue.gateway import listener as listen
from trilogue.gateway.listener import Listener
from trilogue.gateway.reply_queue import BufferedReply, PipelinedConnection
from trilogue.gateway.stream import Limits
from trilogue.wire.frames import Int32Frames


class Echo(PipelinedConnection):
    """Answers each frame with itself; `later` frames when the test decides."""

    def __init__(self, gateway: EchoGateway) -> None:
        super().__init__()
        self.gateway = gateway

    def frame(self, frame):
        if bytes(frame) == b"later":
            place = BufferedReply()
            self.queue(place)
            self.gateway.promised.append((self, place))
        else:
            self.queue_reply(bytearray(struct.pack(">i", len(frame)) + bytes(frame)))
        return True

    def end_iteration(self):
        self.flush()


class EchoGateway:
    name = "echo"

    def __init__(self) -> None:
        self.sessions: list[Echo] = []
        self.promised: list[tuple[Echo, BufferedReply]] = []

    def frames(self, limit: int) -> Int32Frames:
        return Int32Frames(limit)

    def make_connection(self) -> Echo:
        self.sessions.append(Echo(self))
        return self.sessions[-1]


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Client:
        return cls(*await asyncio.open_connection(*address))

    async def echo(self, body: bytes) -> bytes:
        self.writer.write(frame(body))
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def is_cut(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@asynccontextmanager
async def listening(limits: Limits, early_s=None, ahead_s=(0.0,)):
    gateway = EchoGateway()
    loop = asyncio.get_running_loop()
    async with Listener(gateway, limits, monotonic=lambda: loop.time() + ahead_s[0]) as listener:
        if early_s is not None:
            listener.early_s = early_s
        address = await listener.open("127.0.0.1", 0)
        yield gateway, listener, address


def run(test, limits: Limits | None = None, early_s=None, ahead_s=(0.0,)) -> None:
    async def body():
        opened = listening(limits or Limits(), early_s, ahead_s)
        async with asyncio.timeout(20), opened as (gateway, listener, address):
            await test(gateway, listener, address)

    asyncio.run(body())


def test_port_0_takes_a_free_one_and_answers():
    async def test(_door, listener, address):
        assert address[1] > 0
        client = await Client.connect(address)
        assert await client.echo(b"hello") == b"hello"
        assert listener.connections == 1
        await client.close()
        await wait_on_loop(lambda: listener.connections == 0)

    run(test)


def test_connections_have_tcp_keepalive():
    """What is only half there would stay for as long as it waits for us."""

    async def test(_door, listener, address):
        client = await Client.connect(address)
        await client.echo(b"here")
        (stream,) = listener._streams
        raw = stream.writer.transport.get_extra_info("socket")
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        await client.close()

    run(test)


def test_a_taken_port_is_an_error():
    async def test(gateway, _listener, address):
        async with Listener(gateway, Limits(), monotonic=asyncio.get_running_loop().time) as second:
            with pytest.raises(OSError, match="already in use"):
                await second.open(*address)

    run(test)


def test_connections_over_the_cap_are_closed_and_room_is_given_again(caplog):
    """Per-address and global caps."""

    async def test(_door, listener, address):
        first, second = [await Client.connect(address) for _ in range(2)]
        assert await first.echo(b"1") == b"1"
        assert await second.echo(b"2") == b"2"
        third = await Client.connect(address)
        assert await third.is_cut()
        assert listener.refused == 1
        await first.close()
        await wait_on_loop(lambda: listener.connections == 1)
        fourth = await Client.connect(address)
        assert await fourth.echo(b"4") == b"4"
        for client in (second, third, fourth):
            await client.close()

    async def answer_later(gateway, listener, address):
        listener.limit_connections(2, 10)
        assert listener.limits == Limits(connections=2, connections_per_address=10)
        await test(gateway, listener, address)

    run(test, Limits(connections=2))
    run(test, Limits(connections_per_address=2))
    run(answer_later)

    assert "listener.full" in caplog.messages
    assert "listener.address_full" in caplog.messages


def test_out_of_descriptors_accepting_pauses_and_those_inside_go_on(monkeypatch, caplog):
    """Fd exhaustion."""
    accept = socket.socket.accept
    left = [3]

    def exhausted(self):
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return accept(self)

    async def test(_door, _listener, address):
        inside = await Client.connect(address)
        assert await inside.echo(b"in") == b"in"
        monkeypatch.setattr(socket.socket, "accept", exhausted)
        outside = await Client.connect(address)
        waiting = asyncio.create_task(outside.echo(b"out"))
        await wait_on_loop(lambda: left[0] < 3)
        assert await inside.echo(b"still") == b"still"
        assert await waiting == b"out"
        await inside.close()
        await outside.close()

        await wait_on_loop(lambda: "listener.accept_resumed" in caplog.messages)

    run(test, Limits(accept_retry_s=0.01, accept_quiet_s=1.0, sweep_s=0.01))

    assert caplog.messages.count("listener.accept_paused") == 1, "three pauses, one after the other"
    assert caplog.messages.count("listener.accept_resumed") == 1


def test_the_last_descriptors_are_left_to_files(caplog):
    """A journal that cannot open its next file ends the process: connections must not cause it."""

    async def test(_door, listener, address):
        inside = await Client.connect(address)
        assert await inside.echo(b"in") == b"in"
        (acceptor,) = listener._acceptors
        acceptor.descriptor_end = 0
        outside = await Client.connect(address)
        assert await outside.is_cut()
        assert await inside.echo(b"still") == b"still"
        acceptor.descriptor_end = 1 << 20
        again = await Client.connect(address)
        assert await again.echo(b"again") == b"again"
        for client in (inside, outside, again):
            await client.close()

    run(test, Limits(accept_retry_s=0.01))

    assert "listener.accept_paused" in caplog.messages


def test_slow_peers_are_swept_away(caplog):
    """Slow loris."""

    async def test(_door, listener, address):
        slow = await Client.connect(address)
        slow.writer.write(frame(b"never whole")[:6])
        assert await slow.is_cut()
        await wait_on_loop(lambda: listener.connections == 0)
        await slow.close()

    run(test, Limits(sweep_s=0.01, incomplete_frame_s=0.05))

    assert "connection.incomplete_frame" in caplog.messages


def test_a_loop_that_was_held_up_cuts_no_peer(caplog):
    """It has not read what they sent meanwhile."""

    async def test(_gateway, listener, address):
        client = await Client.connect(address)
        content = frame(b"whole")
        client.writer.write(content[:6])
        await wait_on_loop(lambda: listener.sweeps > 1)
        ahead_s[0] = 3_600.0
        before = listener.sweeps
        await wait_on_loop(lambda: listener.sweeps > before + 1)
        client.writer.write(content[6:])
        assert await client.reader.readexactly(len(content)) == content
        await client.close()

    ahead_s = [0.0]
    run(test, Limits(sweep_s=0.01), ahead_s=ahead_s)

    assert "connection.incomplete_frame" not in caplog.messages


def test_drain_answers_requests_in_flight_and_closes():
    async def test(gateway, listener, address):
        client, idle = await Client.connect(address), await Client.connect(address)
        client.writer.write(frame(b"later"))
        await wait_on_loop(lambda: gateway.promised)
        assert is_listening(address[1])
        draining = asyncio.create_task(listener.drain(5.0))
        await wait_on_loop(lambda: listener.connections == 1)
        assert await idle.is_cut()
        assert not is_listening(address[1])
        assert not draining.done()

        session, place = gateway.promised[0]
        session.fill(place, [frame(b"at last")])

        assert await client.reader.readexactly(11) == frame(b"at last")
        assert await draining
        await client.close()
        await idle.close()

    run(test)


def test_drain_gives_up_after_its_deadline_and_closing_cuts_the_rest():
    clients = []

    async def test(gateway, listener, address):
        client = await Client.connect(address)
        clients.append(client)
        client.writer.write(frame(b"later"))
        await wait_on_loop(lambda: gateway.promised)
        assert not await listener.drain(0.01)
        assert listener.connections == 1

    async def body():
        async with asyncio.timeout(20):
            async with listening(Limits()) as parts:
                await test(*parts)
            assert await clients[0].is_cut()
            await clients[0].close()

    asyncio.run(body())


def test_a_flood_of_connections_that_reset_leaves_nothing_behind():
    """RST and connect flood."""

    async def test(_door, listener, address):
        for _ in range(300):
            raw = socket.create_connection(address)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.close()
        await wait_on_loop(lambda: listener.connections == 0)
        client = await Client.connect(address)
        assert await client.echo(b"alive") == b"alive"
        await client.close()

    run(test)


def test_connection_above_the_rate_is_closed_after_a_delay():
    """KIP-612: a connection above the rate of its address is closed, after a delay."""
    early = iter([0.0, 0.2, 0.0])

    async def test(_door, listener, address):
        loop = asyncio.get_running_loop()
        first = await Client.connect(address)
        assert await first.echo(b"a") == b"a"
        began = loop.time()

        second = await Client.connect(address)
        assert await second.is_cut()

        assert 0.19 < loop.time() - began < 30
        assert (listener.refused, listener.connections) == (1, 1)
        third = await Client.connect(address)
        assert await third.echo(b"c") == b"c"
        for client in (first, second, third):
            await client.close()

    run(test, early_s=lambda _address: next(early))


def test_few_of_them_are_held(monkeypatch):
    monkeypatch.setattr(listen, "HELD_MAX", 2)

    async def test(_door, listener, address):
        clients = [await Client.connect(address) for _ in range(5)]
        await wait_on_loop(lambda: listener.refused == 5)

        cut = [await client.is_cut() for client in clients[2:]]

        assert cut == [True] * 3
        assert len(listener._held) == 2
        listener.stop_accepting()
        assert [await client.is_cut() for client in clients[:2]] == [True] * 2
        for client in clients:
            await client.close()

    run(test, early_s=lambda _address: 3600.0)
