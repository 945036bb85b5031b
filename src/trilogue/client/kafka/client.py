"""The client of one cluster: its producers, its consumers and its admin client.

    async with KafkaClient("127.0.0.1:9092") as client:
        producer = await client.producer()
        sent = await producer.send("orders", b"one", key=b"k")
        print(await client.admin.list_topics())

What may be chosen is in options.py.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.errors import ClosedError
from trilogue.client.kafka.options import ClientOptions, ConsumerOptions, ProducerOptions
from trilogue.client.lifecycle import ClientBase
from trilogue.client.options import build_options

if TYPE_CHECKING:
    from trilogue.client.kafka.admin import Admin
    from trilogue.client.kafka.consumer.consumer import Consumer, Listener
    from trilogue.client.kafka.consumer.large_responses import LargeResponses
    from trilogue.client.kafka.producer.producer import Producer


class KafkaClient(ClientBase):
    """The metadata and shared connections of one cluster.

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
        super().__init__(ClosedError)
        self.options = build_options(ClientOptions, options)
        self._cluster = KafkaCluster(
            servers,
            client_id=self.options.client_id,
            timeout_s=self.options.request_timeout_s,
            connect_timeout_s=self.options.connect_timeout_s,
            security=self.options.security,
            dial=self.options.dial,
        )
        self._dice = dice or random.Random()  # noqa: S311 - spreads messages, guards nothing
        self._clock = clock
        self._numbers = itertools.count(1)

    @property
    def cluster(self) -> KafkaCluster:
        """What is known of the cluster, and the quick connections."""
        return self._cluster

    @cached_property
    def admin(self) -> Admin:
        """All administrative requests; loaded when they are first wanted."""
        from trilogue.client.kafka.admin.admin import Admin

        return Admin(self._cluster)

    async def producer(self, **options: Any) -> Producer:
        """Make a producer. Options: see `ProducerOptions`."""
        from trilogue.client.kafka.producer.producer import Producer

        self._check_open()
        chosen = build_options(ProducerOptions, options)
        lane = f"producer-{next(self._numbers)}"
        return self._track(Producer(self._cluster, chosen, lane, self._dice, self._clock))

    async def consumer(
        self,
        *topics: str,
        pattern: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        large_responses: LargeResponses | None = None,
        **options: Any,
    ) -> Consumer:
        """Make a consumer: of topics with a `group`, else of partitions that it is assigned.

        What is called when partitions come and go gets the list of them, and may be a coroutine
        function. Consumers that share the memory of a server take turns by `large_responses`.
        Options: see `ConsumerOptions`.
        """
        from trilogue.client.kafka.admin.offsets import OffsetAdmin
        from trilogue.client.kafka.consumer.consumer import Consumer

        self._check_open()
        chosen = build_options(ConsumerOptions, options)
        made = Consumer(
            self._cluster, OffsetAdmin(self._cluster), chosen, f"consumer-{next(self._numbers)}",
            on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost,
            large_responses=large_responses,
        )  # fmt: skip
        try:
            if topics or pattern is not None:
                await made.subscribe(*topics, pattern=pattern)
        except BaseException:
            await made.close()
            raise
        return self._track(made)

    async def _disconnect(self) -> None:
        await self._cluster.close()
