"""What the connection of a client reports about a peer that is no server of its protocol."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.gateway.loop import on_loop
from trilogue.client.connection import FrameConnection
from trilogue.client.errors import ConnectionLost, describe_os_error

LIMIT_S = 60
CLOSED = "the server closed the connection"


@asynccontextmanager
async def peer_that_sends(answer: bytes) -> AsyncIterator[int]:
    """The port of a peer that reads something, sends these bytes and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", f"{CLOSED} without an answer, as a listener of another protocol or of TLS does"),
        (b"HTTP/1.1 400 Bad Request\r\n", "the answer is not of this protocol: frame of "),
        (b"\0\0\0\1x", CLOSED),
    ],
    ids=["silent", "http", "frame"],
)
@on_loop
async def test_the_reason_of_a_lost_connection_names_a_wrong_peer(answer: bytes, reason: str):
    async with peer_that_sends(answer) as port:
        lost = asyncio.get_running_loop().create_future()
        connection = FrameConnection(lambda frame: None, lost.set_result)
        await connection.open("127.0.0.1", port, LIMIT_S)
        connection.send([b"\0\0\0\1x"])
        problem = await asyncio.wait_for(lost, LIMIT_S)

    assert str(problem).startswith(reason)
    assert (str(problem) == CLOSED) == (reason == CLOSED)


@on_loop
async def test_tls_to_a_listener_without_it_is_named_as_such():
    connection = FrameConnection(lambda frame: None, lambda problem: None)
    async with peer_that_sends(b"") as port:
        with pytest.raises(ConnectionLost, match="no TLS handshake, is this a listener of TLS"):
            await connection.open("127.0.0.1", port, LIMIT_S, ssl.create_default_context())


@on_loop
async def test_a_connection_that_its_owner_closed_blames_no_server():
    async with peer_that_sends(b"") as port:
        lost = asyncio.get_running_loop().create_future()
        connection = FrameConnection(lambda frame: None, lost.set_result)
        await connection.open("127.0.0.1", port, LIMIT_S)
        connection.close()
        problem = await asyncio.wait_for(lost, LIMIT_S)

    assert str(problem) == "connection is closed"


REFUSED = "[Errno 111] Connect call failed ('{}', 9092)"


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, REFUSED), "Connection refused"),
        (
            OSError(f"Multiple exceptions: {REFUSED.format('::1')}, {REFUSED.format('127.0.0.1')}"),
            "Connection refused",
        ),
        (OSError(errno.ENETUNREACH, "Connect call failed"), "Network is unreachable"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError("could not bind"), "could not bind"),
    ],
)
def test_a_failed_connect_names_its_cause_once(problem: OSError, text: str):
    assert describe_os_error(problem) == text
