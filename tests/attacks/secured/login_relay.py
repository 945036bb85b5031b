"""Lets peers that know neither TLS nor logins attack a secured node: a process between both.

It listens at a port for each protocol. Each connection that it accepts becomes one over TLS, logged
in as a user, or as none; all that follows is passed on as far as the other side reads.

    with LoginRelay(targets, authority, user, password) as relay:
        dial(relay.doors["kafka"])
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import struct
import subprocess
import sys
from collections.abc import Mapping
from typing import Self

from tests.crash.pulsar.test_hostile import TYPES, command
from tests.security.test_kafka_logins import frame, text
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

SOURCE = "127.0.0.5"  # the address of the peers, for the node
PIECE = 1 << 16
HOST = b"Host: localhost\r\n"


class LoginRelay:
    """The process: `doors` has its address for each protocol."""

    def __init__(
        self, targets: Mapping[str, str], authority: str, user: str = "", password: str = ""
    ) -> None:
        given = {"targets": dict(targets), "authority": authority}
        self._given = json.dumps({**given, "user": user, "password": password})
        self.doors: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(self._given.encode() + b"\n")
        self._process.stdin.flush()
        self.doors = json.loads(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


class Login:
    """How the connections of a relay log in."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._plain = f"\0{user}\0{password}".encode()
        self._basic = f"{user}:{password}"

    async def log_in(
        self,
        protocol: str,
        client: asyncio.StreamReader,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Send what comes before the client's own bytes."""
        if self._user and protocol == "kafka":
            token = struct.pack(">i", len(self._plain)) + self._plain
            for request in (frame(17, 1, text("PLAIN")), frame(36, 1, token)):
                writer.write(request)
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await reader.readexactly(size)
        elif self._user and protocol == "pulsar":
            head = await client.readexactly(8)
            size, command_size = struct.unpack(">II", head)
            content = await client.readexactly(size - 4)
            made = BaseCommand.FromString(content[:command_size])
            writer.write(self._connect() if made.type == TYPES["connect"] else head + content)

    def _connect(self) -> bytes:
        login = {"auth_method_name": "basic", "auth_data": self._basic.encode()}
        return command("connect", client_version="hostile", protocol_version=21, **login)

    def change(self, protocol: str, data: bytes) -> bytes:
        """Add the login to the requests of HTTP."""
        if not self._user or protocol != "http":
            return data
        basic = base64.b64encode(self._basic.encode())
        return data.replace(HOST, HOST + b"Authorization: Basic " + basic + b"\r\n")


def find_cut_host(data: bytes) -> int:
    """Return how many bytes at the end may be the beginning of a line with the host."""
    sizes = range(min(len(HOST) - 1, len(data)), 0, -1)
    return next((size for size in sizes if data.endswith(HOST[:size])), 0)


async def pass_on(
    protocol: str, login: Login, source: asyncio.StreamReader, target: asyncio.StreamWriter
) -> None:
    kept = b""
    while data := await source.read(PIECE):
        data = kept + data
        cut = len(data) - find_cut_host(data) if protocol == "http" else len(data)
        data, kept = data[:cut], data[cut:]
        target.write(login.change(protocol, data))
        await target.drain()


async def relay(
    protocol: str,
    target: str,
    context: ssl.SSLContext,
    login: Login,
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Pass on all of one connection, until either side ends."""
    host, port = target.rsplit(":", 1)
    writers = [client[1]]
    with contextlib.suppress(OSError, EOFError, struct.error, ValueError):
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=context, server_hostname="localhost", local_addr=(SOURCE, 0)
        )
        writers.append(writer)
        await login.log_in(protocol, client[0], reader, writer)
        none = Login("", "")
        ways = [
            asyncio.create_task(pass_on(protocol, login, client[0], writer)),
            asyncio.create_task(pass_on("", none, reader, client[1])),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    for each in writers:
        each.transport.abort()


async def serve() -> None:
    given = json.loads(sys.stdin.readline())
    context = ssl.create_default_context(cafile=given["authority"])
    login = Login(given["user"], given["password"])
    doors, servers = {}, []
    for protocol, target in given["targets"].items():

        async def accept(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            protocol: str = protocol,
            target: str = target,
        ) -> None:
            await relay(protocol, target, context, login, (reader, writer))

        servers.append(await asyncio.start_server(accept, "127.0.0.1", 0, backlog=1_000))
        host, port = servers[-1].sockets[0].getsockname()
        doors[protocol] = f"{host}:{port}"
    print(json.dumps(doors), flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the test ends


if __name__ == "__main__":
    asyncio.run(serve())
