"""Peers that begin a TLS handshake and never end it: memory is bounded, and others are served."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.node import PeakMemory
from tests.brokers import OurServer
from tests.crash.hostile import Healthy, dial
from tests.security.certificates import Authority
from tests.waiting import wait_until

MIB = 1 << 20
HALF_OPEN = 5_000
GROWTH_MAX = 200 * MIB
ANSWER_WITHIN_S = 1.0
ALL_OVER_S = 30.0
REQUESTS = {
    "kafka-ssl": bytes.fromhex("0000000f 0012 0000 00000001 0005") + b"tests",
    "pulsar-ssl": bytes.fromhex("0000000d 00000009 0802 1205 0a0174 2013"),  # CONNECT of client "t"
    "tubemq-broker-ssl": b"",  # its handshake is enough
    "https": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]


class TlsServer(OurServer):
    """A server with one listener, over TLS."""

    def __init__(self, data: Path, listener: str, settings: dict[str, object]) -> None:
        self.door_names = (listener,)
        super().__init__(data, settings=settings)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=REQUESTS)
def server(
    tmp_path: Path, authority: Authority, request: pytest.FixtureRequest
) -> Iterator[TlsServer]:
    files = authority.issue("server", common_name="localhost")
    settings = {
        "tls.certificate": files.certificate,
        "tls.key": files.key,
        "listen.kafka": "off",
    }
    made = TlsServer(tmp_path / "data", request.param, settings).start()
    yield made
    made.kill9()


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def client_hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("sent", ["nothing", "half a hello", "a hello"])
def test_5000_half_open_handshakes(server: TlsServer, authority: Authority, sent: str):
    context = ssl.create_default_context(cafile=str(authority.certificate))
    hello = client_hello(context)
    first = {"nothing": b"", "half a hello": hello[: len(hello) // 2], "a hello": hello}[sent]

    # Whole hellos cost CPU: addresses take turns, so the client has its own. The others cost a
    # socket each, and the client may come from the same address.
    host, port = server.address.rsplit(":", 1)
    source = ("127.0.0.2" if sent == "a hello" else host, 0)

    def request() -> None:
        """Connect, shake hands, be answered."""
        with (
            socket.create_connection((host, int(port)), 10, source) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as opened,
        ):
            if asked := REQUESTS[server.door_names[0]]:
                opened.sendall(asked)
                assert opened.recv(4)

    request()  # which loads what the protocol needs
    peers: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        memory = stack.enter_context(PeakMemory(server.pid))
        healthy = stack.enter_context(Healthy(server.pid, request, lambda: None))
        healthy.wait_for(10)
        for _ in range(HALF_OPEN):
            peers.append(stack.enter_context(dial(server.address)))
            with contextlib.suppress(OSError):  # it was ended for others already
                peers[-1].sendall(first)
        wait_until(
            lambda: server.output.count("listener.handshake_failed") >= HALF_OPEN,
            "the end of all handshakes",
            ALL_OVER_S,
        )
        healthy.wait_for(10)

    assert healthy.slowest < ANSWER_WITHIN_S
    assert memory.grown < GROWTH_MAX
    assert server.stop() == 0


def test_a_server_stops_while_handshakes_are_half_open(server: TlsServer):
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(dial(server.address))
        assert server.running.stop(timeout=8.0) == 0
