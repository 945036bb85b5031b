"""The acceptor of a listening socket: without descriptors for a while, and at its end."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from tests.waiting import wait_on_loop
from trilogue.gateway.socket_acceptor import ConnectionTasks, SocketAcceptor
from trilogue.gateway.stream import Limits


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
        connected: list[socket.socket] = []

        def admit(accepted: socket.socket, _address: str) -> None:
            connected.append(accepted)

        limits = Limits(accept_retry_s=0.01, accept_quiet_s=0.5, sweep_s=0.01)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            acceptor = SocketAcceptor("https", listening, admit, limits)
            with socket.create_connection(listening.getsockname()):
                await wait_on_loop(lambda: connected)
                await wait_on_loop(lambda: "listener.accept_resumed" in caplog.messages)
            acceptor.close()
            connected[0].close()

    asyncio.run(test())

    assert caplog.messages.count("listener.accept_paused") == 1
    assert caplog.messages.count("listener.accept_resumed") == 1


@pytest.mark.parametrize("iterations", range(4))
def test_a_socket_whose_connection_is_cancelled_is_closed(iterations):
    """Accepted and not begun, begun, and built."""

    async def test() -> bytes:
        async def connect(accepted: socket.socket, _address: str) -> None:
            _, writer = await asyncio.open_connection(sock=accepted)
            try:
                await asyncio.Event().wait()
            finally:
                writer.transport.abort()

        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            tasks = ConnectionTasks(connect)
            acceptor = SocketAcceptor("test", listening, tasks.begin)
            with socket.create_connection(listening.getsockname()) as client:
                client.settimeout(60)
                for _ in range(1 + iterations):
                    await asyncio.sleep(0)
                acceptor.close()
                tasks.cancel()
                await tasks.wait()
                try:
                    return client.recv(1)
                except ConnectionResetError:
                    return b""

    assert asyncio.run(test()) == b""
