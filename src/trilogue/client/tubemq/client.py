"""The client: producers and consumers of one cluster, which may share its connections.

async with TubeClient("127.0.0.1:8715") as client:
producer = await client.producer("orders")
sent = await producer.send(Message("orders", b"one"))
async with await client.consumer("orders", group="billing") as consumer:
async for message in consumer:
print(message.body)
"""

from __future__ import annotations

import asyncio
import random
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from trilogue.client.errors import InvalidOption
from trilogue.client.lifecycle import AsyncCloseable
from trilogue.client.options import build_options
from trilogue.client.pool import split_addresses
from trilogue.client.tubemq.consumer import Consumer, Topics, parse_topics
from trilogue.client.tubemq.errors import ClosedError
from trilogue.client.tubemq.options import (
    RENAMED_OPTIONS,
    ClientOptions,
    Connections,
    ConsumerOptions,
    ProducerOptions,
)
from trilogue.client.tubemq.producer import Producer
from trilogue.client.tubemq.server_connections import (
    ServerConnections,
    borrow_connections,
    release_connections,
)
from trilogue.client.tubemq.session import ClientContext, MasterSession

MASTER_PORT = 8715
PRUNE_AT = 64
Made = TypeVar("Made", bound=MasterSession)


class TubeClient(AsyncCloseable):
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
        self.options = build_options(ClientOptions, options, RENAMED_OPTIONS)
        self._core = ClientContext(
            self.options,
            parse_masters(masters),
            dice or random.Random(),  # noqa: S311 - spreads requests, and makes nonces
            clock,
        )
        self._shared: ServerConnections | None = None
        self._made: dict[MasterSession, ServerConnections] = {}
        self._look_through = PRUNE_AT
        self._closed = False

    async def producer(self, *topics: str, **options: Any) -> Producer:
        """Make a producer and publish topics. Options: see `ProducerOptions`."""
        chosen = build_options(ProducerOptions, options, RENAMED_OPTIONS)
        made = await self._started(lambda servers: Producer(self._core, servers, chosen))
        if topics:
            try:
                await made.publish(*topics)
            except BaseException:
                await made.close()
                raise
        return made

    async def consumer(self, *topics: Topics, group: str | None = None, **options: Any) -> Consumer:
        """Make a consumer of topics for a group. Options: see `ConsumerOptions`.

        Each of `topics` is a name, several names, or a mapping of names to the types of messages
        to read. The order `consumer(group, topics)` of earlier versions is deprecated.
        """
        wanted, of_group = consumer_arguments(topics, group, options)
        chosen = build_options(ConsumerOptions, options, RENAMED_OPTIONS)
        return await self._started(
            lambda servers: Consumer(self._core, servers, of_group, wanted, chosen)
        )

    async def _started(self, make: Callable[[ServerConnections], Made]) -> Made:
        self._check()
        await self._forget_closed()
        servers = self._servers()
        try:
            made = make(servers)
            await made.start()
        except BaseException:
            await release_connections(servers, self.options)
            raise
        if self._closed:  # closed meanwhile: the client does not own this one
            try:
                await made.close()
            finally:
                await release_connections(servers, self.options)
            raise ClosedError("the client is closed")
        self._made[made] = servers
        return made

    def _servers(self) -> ServerConnections:
        """Connections for one more producer or consumer."""
        if self.options.connections is not Connections.CLIENT:
            return borrow_connections(self.options)
        if self._shared is None:
            self._shared = borrow_connections(self.options)
        self._shared.users += 1
        return self._shared

    async def _forget_closed(self) -> None:
        """Give back the connections of what was closed; now and then is enough."""
        if len(self._made) >= self._look_through:
            for one in [one for one in self._made if one.closed]:
                await release_connections(self._made.pop(one), self.options)
            self._look_through = max(PRUNE_AT, 2 * len(self._made))

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the client is closed")
        self._check_loop()

    async def close(self) -> None:
        """Close what was made, then the connections; messages under way are awaited."""
        if self._closed:
            return
        self._check_loop()
        self._closed = True
        try:
            await asyncio.gather(*(one.close() for one in self._made), return_exceptions=True)
        finally:
            made, self._made = self._made, {}
            for servers in made.values():
                await release_connections(servers, self.options)
            if self._shared is not None:
                await release_connections(self._shared, self.options)


def consumer_arguments(
    topics: tuple[Topics, ...], group: str | None, options: dict[str, Any]
) -> tuple[Topics, str]:
    """The topics and the group of `consumer`; `topics=` and `(group, topics)` are deprecated."""
    if "topics" in options:
        warnings.warn("give topics before the options", DeprecationWarning, stacklevel=3)
        topics = (*topics, options.pop("topics"))
    if group is None and len(topics) == 2 and isinstance(topics[0], str):
        warnings.warn(
            "consumer(group, topics) is now consumer(topics, group=group)",
            DeprecationWarning,
            stacklevel=3,
        )
        return topics[1], topics[0]
    if not group:
        raise InvalidOption(f"group={group!r} is not allowed: a consumer reads for a group")
    wanted: dict[str, Iterable[str]] = {}
    for one in topics:
        wanted |= parse_topics(one)
    return wanted, group


def parse_masters(text: str) -> list[tuple[str, int]]:
    """The addresses of masters; InvalidOption, InvalidOptionType."""
    return split_addresses("masters", text, MASTER_PORT)
