"""The client: makes producers and consumers of one cluster, and administrates it.

    async with KafkaClient("127.0.0.1:9092") as client:
        producer = await client.producer()
        sent = await producer.send("orders", b"one", key=b"k")
        print(await client.admin.list_topics())

What may be chosen is in options.py.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trilogue.client.closing import Closing
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.errors import ClosedError
from trilogue.client.kafka.options import ClientOptions, ConsumerOptions, ProducerOptions

if TYPE_CHECKING:
    from trilogue.client.kafka.admin import Admin
    from trilogue.client.kafka.consumer import Consumer, Listener
    from trilogue.client.kafka.producer import Producer

LOOK_THROUGH: Final = 64
Made = TypeVar("Made", "Producer", "Consumer")


class KafkaClient(Closing):
    """What is known of a cluster, and its quick connections, shared by all that is made here.

    `servers` is `host:port`, several with commas. Options: see `ClientOptions`.
    """

    def __init__(
        self,
        servers: str,
        *,
        dice: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        self.options = ClientOptions(**options)
        self._cluster = KafkaCluster(
            servers, client_id=self.options.client_id, timeout_s=self.options.request_timeout_s
        )
        self._dice = dice or random.Random()  # noqa: S311 - spreads messages, guards nothing
        self._clock = clock
        self._numbers = itertools.count(1)
        self._made: list[Producer | Consumer] = []
        self._look_through = LOOK_THROUGH
        self._closed = False

    @property
    def cluster(self) -> KafkaCluster:
        """What is known of the cluster, and the quick connections."""
        return self._cluster

    @cached_property
    def admin(self) -> Admin:
        """All administrative requests; loaded when they are first wanted."""
        from trilogue.client.kafka.admin.whole import Admin

        return Admin(self._cluster)

    async def producer(self, **options: Any) -> Producer:
        """Make a producer. Options: see `ProducerOptions`."""
        from trilogue.client.kafka.producer import Producer

        self._check()
        chosen = ProducerOptions(**options)
        lane = f"producer-{next(self._numbers)}"
        return self._remember(Producer(self._cluster, chosen, lane, self._dice, self._clock))

    async def consumer(
        self,
        *topics: str,
        pattern: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        **options: Any,
    ) -> Consumer:
        """Make a consumer: of topics with a `group`, else of partitions that it is assigned.

        What is called when partitions come and go gets the list of them, and may be a coroutine
        function. Options: see `ConsumerOptions`.
        """
        from trilogue.client.kafka.admin.offsets import Offsets
        from trilogue.client.kafka.consumer import Consumer

        self._check()
        chosen = ConsumerOptions(**options)
        made = Consumer(
            self._cluster, Offsets(self._cluster), chosen, f"consumer-{next(self._numbers)}",
            on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost,
        )  # fmt: skip
        try:
            if topics or pattern is not None:
                await made.subscribe(*topics, pattern=pattern)
        except BaseException:
            await made.close()
            raise
        return self._remember(made)

    def _remember(self, made: Made) -> Made:
        """To be closed with the client; what was closed before is forgotten now and then."""
        if len(self._made) >= self._look_through:
            self._made = [one for one in self._made if not one.closed]
            self._look_through = max(LOOK_THROUGH, 2 * len(self._made))
        self._made.append(made)
        return made

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the client is closed")

    async def close(self) -> None:
        """Close what was made, then the connections; messages under way are awaited."""
        if self._closed:
            return
        self._closed = True
        made, self._made = self._made, []
        try:
            await asyncio.gather(*(one.close() for one in made), return_exceptions=True)
        finally:
            await self._cluster.close()
