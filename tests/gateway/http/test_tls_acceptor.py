"""The acceptor of an HTTPS socket, without descriptors for a while."""

from __future__ import annotations

import asyncio
import errno
import socket

from tests.waiting import wait_on_loop
from trilogue.gateway.http.tls_acceptor import TlsAcceptor
from trilogue.gateway.stream import Limits


class Contexts:
    """In place of the certificates: it only counts connections."""

    def __init__(self) -> None:
        self.accepted: list[socket.socket] = []

    async def connect(self, _loop, _make_protocol, accepted, _address) -> None:
        self.accepted.append(accepted)


def test_pauses_that_follow_each_other_are_logged_as_one(monkeypatch, caplog):
    accept = socket.socket.accept
    left = [5]

    def exhausted(self):
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return accept(self)

    async def test() -> None:
        monkeypatch.setattr(socket.socket, "accept", exhausted)
        contexts = Contexts()
        limits = Limits(accept_retry_s=0.01, accept_quiet_s=0.5, sweep_s=0.01)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            acceptor = TlsAcceptor(listening, contexts, asyncio.Protocol, limits)
            with socket.create_connection(listening.getsockname()):
                await wait_on_loop(lambda: contexts.accepted)
                await wait_on_loop(lambda: "listener.accept_resumed" in caplog.messages)
            acceptor.close()
            contexts.accepted[0].close()

    asyncio.run(test())

    assert caplog.messages.count("listener.accept_paused") == 1
    assert caplog.messages.count("listener.accept_resumed") == 1
