"""TLS over real sockets: a connection of the server against OpenSSL as its client."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import uvloop

from tests.attacks.openssl_peer import (
    KEY_UPDATE_NOT_REQUESTED,
    KEY_UPDATE_REQUESTED,
    OpenSslPeer,
)
from tests.security.certificates import Authority
from tests.waiting import wait_on_loop
from trilogue.gateway.frame_dispatcher import IterationBudget
from trilogue.gateway.tls import TlsContexts, TlsFiles
from trilogue.gateway.tls_transport import (
    CONTROL_BYTES_MAX,
    FIRST_PIECE_BYTES,
    LARGE_AFTER_BYTES,
    LARGE_MAX,
    LARGE_PIECE_BYTES,
    PIECE_AFTER_BYTES,
    PIECE_BYTES,
    RECEIVED_BYTES,
    UNREAD_ANSWERS_BYTES_MAX,
    TlsMemory,
    TlsTransport,
)

MIB = 1 << 20
KEY_UPDATE_BYTES = 27  # of a record


class _Echo:
    """Sends back what it gets, and reads no more while its peer does not."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = 0
        self.has_ended = False
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.transport.writelines([data[:10], data[10:]])

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def eof_received(self) -> bool:
        self.has_ended = True
        return False

    def connection_lost(self, problem: Exception | None) -> None:
        self.lost.set_result(problem)


class Echo(_Echo, asyncio.Protocol):
    """Gets bytes, as the HTTP server does."""


class BufferedEcho(_Echo, asyncio.BufferedProtocol):
    """Gets bytes in a buffer smaller than a record, and pauses after each, as a stream may."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = bytearray(5_000)

    def get_buffer(self, _sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self.buffer[:nbytes]))
        self.transport.pause_reading()
        if not self.transport.get_write_buffer_size():
            self.transport.resume_reading()
        else:
            asyncio.get_running_loop().call_later(0.001, self.transport.resume_reading)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


class Server:
    """Accepts one connection; `opened` are those of this test, which `run` closes."""

    opened: ClassVar[list[Server]] = []

    def __init__(
        self,
        authority: Authority,
        make: type[_Echo],
        iterations: IterationBudget | None = None,
    ) -> None:
        files = authority.issue("server", common_name="localhost")
        loop = asyncio.get_running_loop()
        self.contexts = TlsContexts(TlsFiles(files.certificate, files.key), loop.time, iterations)
        self.client_context = ssl.create_default_context(cafile=str(authority.certificate))
        self.authority = authority.certificate
        self._make = make
        self.made: list[_Echo] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.port: int = self.listening.getsockname()[1]
        self.writers: list[asyncio.StreamWriter] = []
        self.opened.append(self)

    async def close(self) -> None:
        self.listening.close()
        for writer in self.writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        for made in self.made:
            made.transport.abort()
            await made.lost

    async def accept(self) -> None:
        loop = asyncio.get_running_loop()
        accepted, address = await loop.sock_accept(self.listening)

        def make() -> asyncio.BaseProtocol:
            self.made.append(self._make())
            return self.made[-1]  # type: ignore[return-value]

        try:
            await self.contexts.connect(loop, make, accepted, address[0])
        except OSError:
            accepted.close()
            raise

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        accepting = asyncio.create_task(self.accept())
        opened = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.client_context, server_hostname="localhost"
        )
        self.writers.append(opened[1])
        await accepting
        return opened

    async def connect_openssl(self) -> OpenSslPeer:
        """A peer whose methods block, for threads."""
        accepting = asyncio.create_task(self.accept())
        address = f"127.0.0.1:{self.port}"
        peer = await asyncio.to_thread(OpenSslPeer, address, self.authority)
        await accepting
        return peer


def run(test: Callable[[], Coroutine[Any, Any, None]], factory: Callable[[], Any]) -> None:
    async def limited() -> None:
        try:
            async with asyncio.timeout(60):
                await test()
        finally:
            while Server.opened:
                await Server.opened.pop().close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(limited())


both_loops = pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])


@both_loops
@pytest.mark.parametrize("kind", [Echo, BufferedEcho])
def test_all_bytes_pass_in_both_directions(authority: Authority, kind: type[_Echo], loop: Any):
    async def test() -> None:
        server = Server(authority, kind)
        reader, writer = await server.connect()
        sent = os.urandom(3 * MIB + 17)

        async def send() -> None:
            for at in range(0, len(sent), 100_003):
                writer.write(sent[at : at + 100_003])
                await writer.drain()

        sending = asyncio.create_task(send())
        assert await reader.readexactly(len(sent)) == sent
        await sending
        writer.close()
        await server.made[0].lost
        assert server.made[0].has_ended

    run(test, loop)


@both_loops
def test_a_peer_that_is_not_read_costs_one_buffer(authority: Authority, loop: Any):
    async def test() -> None:
        server = Server(authority, Echo)
        reader, writer = await server.connect()
        made = server.made[0]
        made.transport.pause_reading()
        writer.write(bytes(4 * MIB))
        transport = made.transport
        assert isinstance(transport, TlsTransport)
        await wait_on_loop(lambda: transport.kept_bytes > 0)
        await asyncio.sleep(0.3)  # by design: in this time more would come

        assert made.received == 0
        assert 0 < transport.kept_bytes <= RECEIVED_BYTES
        made.transport.resume_reading()
        assert await reader.readexactly(4 * MIB) == bytes(4 * MIB)
        writer.close()

    run(test, loop)


@both_loops
def test_written_bytes_arrive_before_the_end(authority: Authority, loop: Any):
    def read_all(server: Server) -> bytes:
        with (
            socket.create_connection(("127.0.0.1", server.port), 30) as raw,
            server.client_context.wrap_socket(raw, server_hostname="localhost") as opened,
        ):
            return b"".join(iter(partial(opened.recv, 100_000), b""))

    async def test() -> None:
        server = Server(authority, Echo)
        accepting = asyncio.create_task(server.accept())
        reading = asyncio.create_task(asyncio.to_thread(read_all, server))
        await accepting

        server.made[0].transport.write(bytes(5 * MIB))
        server.made[0].transport.close()
        server.made[0].transport.write(b"too late")

        assert await reading == bytes(5 * MIB)
        assert await server.made[0].lost is None

    run(test, loop)


@both_loops
@pytest.mark.parametrize("sent", [b"\x17\x03\x03\x00\x10" + bytes(16), b"GET / HTTP/1.1\r\n\r\n"])
def test_bytes_that_are_no_tls_end_the_connection(
    authority: Authority, loop: Any, sent: bytes, caplog: pytest.LogCaptureFixture
):
    async def test() -> None:
        server = Server(authority, Echo)
        _reader, writer = await server.connect()

        os.write(writer.get_extra_info("socket").fileno(), sent)

        await server.made[0].lost
        assert server.made[0].received == 0

    run(test, loop)
    assert "connection.bad_tls" in [record.msg for record in caplog.records]


@both_loops
def test_a_cut_connection_is_lost(authority: Authority, loop: Any):
    async def test() -> None:
        server = Server(authority, Echo)
        _reader, writer = await server.connect()

        writer.transport.abort()

        await server.made[0].lost

    run(test, loop)


@both_loops
def test_a_handshake_that_fails_is_an_os_error(authority: Authority, loop: Any):
    async def test() -> None:
        server = Server(authority, Echo)
        accepting = asyncio.create_task(server.accept())
        context = ssl.create_default_context()  # which does not know the authority
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
            )

        with pytest.raises(OSError, match=r"alert|ended|closed|reset"):
            await accepting
        assert server.made == []

    run(test, loop)


@both_loops
def test_a_handshake_that_is_cancelled_leaves_nothing(authority: Authority, loop: Any):
    async def test() -> None:
        server = Server(authority, Echo)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            server.client_context.wrap_bio(
                incoming, outgoing, server_hostname="localhost"
            ).do_handshake()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        server.writers.append(writer)
        writer.write(outgoing.read())
        accepting = asyncio.create_task(server.accept())
        await reader.readexactly(5)  # the handshake is under way

        accepting.cancel()

        with pytest.raises(asyncio.CancelledError):
            await accepting
        with contextlib.suppress(ConnectionError):
            await reader.read(-1)

    run(test, loop)


def test_the_transport_knows_its_certificate_and_addresses(authority: Authority, tmp_path: Path):
    async def test() -> None:
        server = Server(authority, Echo)
        _reader, writer = await server.connect()
        transport = server.made[0].transport

        assert transport.get_extra_info("peercert") in (None, {})
        assert transport.get_extra_info("sslcontext") is not None
        assert transport.get_extra_info("peername")[0] == "127.0.0.1"
        assert not transport.can_write_eof()
        writer.close()

    run(test, uvloop.new_event_loop)


def test_few_connections_of_a_node_pass_large_pieces():
    """Each costs more memory, which no budget counts."""
    memory = TlsMemory()

    assert all(memory.add_large() for _ in range(LARGE_MAX))
    assert not memory.add_large()
    memory.large -= 1
    assert memory.add_large()


@both_loops
def test_pieces_grow_with_what_a_connection_carries(authority: Authority, loop: Any):
    async def test() -> None:
        server = Server(authority, Echo)
        reader, writer = await server.connect()
        connection = server.made[0].transport._connection
        sizes = [connection._piece_bytes]
        for size in (PIECE_AFTER_BYTES, LARGE_AFTER_BYTES):
            writer.write(bytes(size))
            assert await reader.readexactly(size) == bytes(size)
            sizes.append(connection._piece_bytes)
        memory = connection._memory
        large = memory.large
        writer.close()
        await server.made[0].lost

        assert sizes == [FIRST_PIECE_BYTES, PIECE_BYTES, LARGE_PIECE_BYTES]
        assert (large, memory.large) == (1, 0)

    run(test, loop)


class Sink(_Echo, asyncio.Protocol):
    """Reads on, although the peer does not read."""

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


def problems_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.__dict__["problem"]
        for record in caplog.records
        if record.msg == "connection.bad_tls"
    ]


@both_loops
@pytest.mark.parametrize("kind", [Echo, BufferedEcho])
def test_all_bytes_pass_when_every_iteration_is_used_up(
    authority: Authority, kind: type[_Echo], loop: Any
):
    async def test() -> None:
        budget = IterationBudget(itertools.count().__next__)  # each look is a second later
        budget.open(asyncio.get_running_loop().call_soon)
        server = Server(authority, kind, budget)
        reader, writer = await server.connect()
        sent = os.urandom(300_000)

        writer.write(sent)

        assert await reader.readexactly(len(sent)) == sent
        writer.close()
        await server.made[0].lost

    run(test, loop)


@both_loops
@pytest.mark.parametrize("kind", [KEY_UPDATE_REQUESTED, KEY_UPDATE_NOT_REQUESTED])
def test_a_peer_of_records_without_data_is_cut(
    authority: Authority, kind: int, loop: Any, caplog: pytest.LogCaptureFixture
):
    async def test() -> None:
        server = Server(authority, Echo)
        peer = await server.connect_openssl()
        with contextlib.closing(peer):
            for _ in range(2 * CONTROL_BYTES_MAX // KEY_UPDATE_BYTES):
                peer.update_keys(kind)
            with contextlib.suppress(OSError):  # it was cut meanwhile
                await asyncio.to_thread(peer.flush)
            await server.made[0].lost

    run(test, loop)
    assert problems_in(caplog) == ["records without data"]


@both_loops
def test_key_updates_among_data_are_in_order(authority: Authority, loop: Any):
    """As much before each piece of data as padding may be; all in all above the limit."""

    async def test() -> None:
        server = Server(authority, Sink)
        peer = await server.connect_openssl()
        with contextlib.closing(peer):
            for number in range(4 * CONTROL_BYTES_MAX // KEY_UPDATE_BYTES):
                peer.update_keys(KEY_UPDATE_NOT_REQUESTED)
                if not number % 50:
                    peer.send_data(bytes(100))
                    await asyncio.to_thread(peer.flush)
            peer.send_data(b"last")
            await asyncio.to_thread(peer.flush)
            made = server.made[0]
            expected = 4 + 100 * -(-4 * CONTROL_BYTES_MAX // KEY_UPDATE_BYTES // 50)
            await wait_on_loop(lambda: made.received >= expected)
            assert made.received == expected
            assert not made.lost.done()

    run(test, loop)


@both_loops
def test_a_peer_that_does_not_read_the_answers_to_key_updates_is_cut(
    authority: Authority, loop: Any, caplog: pytest.LogCaptureFixture
):
    async def test() -> None:
        server = Server(authority, Sink)
        peer = await server.connect_openssl()
        with contextlib.closing(peer):
            made = server.made[0]
            made.transport.write(bytes(16 * MIB))  # more than the kernels take
            for number in range(2 * UNREAD_ANSWERS_BYTES_MAX // KEY_UPDATE_BYTES):
                peer.update_keys()
                if not number % 50:
                    peer.send_data(bytes(100))
            with contextlib.suppress(OSError):
                await asyncio.to_thread(peer.flush)
            await made.lost

    run(test, loop)
    assert problems_in(caplog) == ["the answers to KeyUpdates are not read"]
