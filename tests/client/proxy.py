"""A proxy between a client and a server; what it does to what it hands on is for its kinds."""

from __future__ import annotations

import asyncio
from typing import Self

from tests.waiting import run_ready_tasks

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Listens at the advertised address of the server."""

    def __init__(self, port: int, target: str) -> None:
        self.port = port
        self._host, _, there = target.rpartition(":")
        self._there = int(there)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._has_ended = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._has_ended = True
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await run_ready_tasks()  # closed transports take a turn to go

    async def hand_on(self, client: Ends, server: Ends) -> None:
        """Serve one connection until it ends; both ends are cut off then."""
        raise NotImplementedError

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._has_ended:  # it was let in before we closed
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve((reader, writer)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, client: Ends) -> None:
        writers = [client[1]]
        try:
            server = await asyncio.open_connection(self._host, self._there)
            writers.append(server[1])
            await self.hand_on(client, server)
        finally:
            for writer in writers:
                writer.transport.abort()
