"""A proxy that breaks connections: what a bad network does to a client."""

from __future__ import annotations

import asyncio
import random

from tests.client.proxy import Ends, Proxy

CUTS = 25


class Cutter(Proxy):
    """Hands bytes on in both directions, and cuts each connection after some of them."""

    def __init__(self, port: int, target: str, dice: random.Random) -> None:
        super().__init__(port, target)
        self.cuts = 0
        self._dice = dice

    async def hand_on(self, client: Ends, server: Ends) -> None:
        left = self._dice.randrange(300, 15_000) if self.cuts < CUTS else 1 << 60
        self.cuts += 1

        async def one_way(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            nonlocal left
            while left > 0 and (octets := await source.read(4096)):
                sink.write(octets[:left])  # amid a frame, if it comes so
                left -= len(octets)
            for _, writer in (client, server):
                writer.close()

        await asyncio.gather(
            one_way(client[0], server[1]), one_way(server[0], client[1]), return_exceptions=True
        )
