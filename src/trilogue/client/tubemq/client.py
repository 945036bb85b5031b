"""The client: makes producers and consumers of one cluster, which may share its connections.

async with TubeClient("127.0.0.1:8715") as client:
producer = await client.producer("orders")
sent = await producer.send(Message("orders", b"one"))
async with await client.consumer("billing", "orders") as consumer:
async for message in consumer:
print(message.body)
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from trilogue.client.closing import Closing
from trilogue.client.errors import ClientError
from trilogue.client.pool import address
from trilogue.client.tubemq.consumer import Consumer, Topics
from trilogue.client.tubemq.errors import ClosedError
from trilogue.client.tubemq.options import (
    ClientOptions,
    Connections,
    ConsumerOptions,
    ProducerOptions,
)
from trilogue.client.tubemq.producer import Producer
from trilogue.client.tubemq.servers import Servers, back, borrow
from trilogue.client.tubemq.session import Core, Session

MASTER_PORT = 8715
LOOK_THROUGH = 64
Made = TypeVar("Made", bound=Session)


class TubeClient(Closing):
    """Producers and consumers of one cluster: what other clients call a session factory.

    `masters` is `host:port`, several with commas. Options: see `ClientOptions`.
    """

    def __init__(
        self,
        masters: str,
        *,
        dice: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        self.options = ClientOptions(**options)
        self._core = Core(
            self.options,
            masters_of(masters),
            dice or random.Random(),  # noqa: S311 - spreads requests, and makes nonces
            clock,
        )
        self._shared: Servers | None = None
        self._made: dict[Session, Servers] = {}
        self._look_through = LOOK_THROUGH
        self._closed = False

    async def producer(self, *topics: str, **options: Any) -> Producer:
        """Make a producer and publish topics. Options: see `ProducerOptions`."""
        chosen = ProducerOptions(**options)
        made = await self._started(lambda servers: Producer(self._core, servers, chosen))
        if topics:
            try:
                await made.publish(*topics)
            except BaseException:
                await made.close()
                raise
        return made

    async def consumer(self, group: str, topics: Topics, **options: Any) -> Consumer:
        """Make a consumer of topics, perhaps of some types of messages only.

        `topics` is a name, several, or a mapping of names to types. Options: see `ConsumerOptions`.
        """
        chosen = ConsumerOptions(**options)
        return await self._started(
            lambda servers: Consumer(self._core, servers, group, topics, chosen)
        )

    async def _started(self, make: Callable[[Servers], Made]) -> Made:
        self._check()
        await self._forget_closed()
        servers = self._servers()
        try:
            made = make(servers)
            await made.start()
        except BaseException:
            await back(servers, self.options)
            raise
        if self._closed:  # meanwhile: nobody else gives them back
            try:
                await made.close()
            finally:
                await back(servers, self.options)
            raise ClosedError("the client is closed")
        self._made[made] = servers
        return made

    def _servers(self) -> Servers:
        """Connections for one more producer or consumer."""
        if self.options.connections is not Connections.CLIENT:
            return borrow(self.options)
        if self._shared is None:
            self._shared = borrow(self.options)
        self._shared.users += 1
        return self._shared

    async def _forget_closed(self) -> None:
        """Give back the connections of what was closed; now and then is enough."""
        if len(self._made) >= self._look_through:
            for one in [one for one in self._made if one.closed]:
                await back(self._made.pop(one), self.options)
            self._look_through = max(LOOK_THROUGH, 2 * len(self._made))

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the client is closed")

    async def close(self) -> None:
        """Close what was made, then the connections; messages under way are awaited."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.gather(*(one.close() for one in self._made), return_exceptions=True)
        finally:
            made, self._made = self._made, {}
            for servers in made.values():
                await back(servers, self.options)
            if self._shared is not None:
                await back(self._shared, self.options)


def masters_of(text: str) -> list[tuple[str, int]]:
    """The addresses of masters; ClientError."""
    if not text.strip():
        raise ClientError("a client needs the address of a master")
    return [address(one, MASTER_PORT) for one in text.split(",")]
