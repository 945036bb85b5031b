"""A proxy that breaks connections: what a bad network does to a client."""

from __future__ import annotations

import asyncio
import random
from typing import Self

CUTS = 25


class Cutter:
    """Hands bytes on in both directions, and cuts each connection after some of them."""

    def __init__(self, port: int, target: str, dice: random.Random) -> None:
        self.port = port
        self.cuts = 0
        self._host, _, there = target.rpartition(":")
        self._there = int(there)
        self._dice = dice
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.sleep(0)  # closed transports take a turn to go

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead, back = await asyncio.open_connection(self._host, self._there)
        left = self._dice.randrange(300, 15_000) if self.cuts < CUTS else 1 << 60
        self.cuts += 1

        async def hand_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            nonlocal left
            while left > 0 and (octets := await source.read(4096)):
                sink.write(octets[:left])  # amid a frame, if it comes so
                left -= len(octets)
            for one in (writer, back):
                one.close()

        try:
            await asyncio.gather(
                hand_on(reader, back), hand_on(ahead, writer), return_exceptions=True
            )
        finally:
            for one in (writer, back):
                one.transport.abort()
