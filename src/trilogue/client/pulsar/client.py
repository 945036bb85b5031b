"""The client: producers, consumers and readers that share its connections.

async with PulsarClient("pulsar://127.0.0.1:6650") as client:
producer = await client.producer("orders")
message_id = await producer.send(b"one")
async with await client.subscribe("orders", "billing") as consumer:
async for message in consumer:
await consumer.ack(message)
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

from trilogue.client.errors import ClientError, InvalidOption, InvalidOptionType
from trilogue.client.lifecycle import ClientBase
from trilogue.client.options import build_options, seconds
from trilogue.client.pulsar.attachment import ClientContext, TopicAttachment
from trilogue.client.pulsar.consumer.consumer import Consumer
from trilogue.client.pulsar.consumer.reader import Reader
from trilogue.client.pulsar.consumer.receive_queue import ReceiveQueue
from trilogue.client.pulsar.consumer.topic_consumer import TopicConsumer
from trilogue.client.pulsar.consumer.topic_pattern import PatternConsumer, TopicPattern
from trilogue.client.pulsar.coordinators import TransactionCoordinators
from trilogue.client.pulsar.errors import ClosedError
from trilogue.client.pulsar.lookup import BinaryLookup, HttpLookup, Lookup
from trilogue.client.pulsar.message import EARLIEST, MessageId
from trilogue.client.pulsar.options import (
    RENAMED_OPTIONS,
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
)
from trilogue.client.pulsar.pool import BrokerPool, is_secure
from trilogue.client.pulsar.producer.message_router import MessageRouter
from trilogue.client.pulsar.producer.producer import Producer
from trilogue.client.pulsar.producer.topic_producer import TopicProducer
from trilogue.client.pulsar.topic_names import full_name, partition_name
from trilogue.client.pulsar.transaction import Transaction

Part = TypeVar("Part", bound=TopicAttachment)
ATTACHED_AT_ONCE = 100
TRANSACTION_S = 60.0


class PulsarClient(ClientBase):
    """Connections to the brokers of one cluster.

    `url` is `pulsar://host:port` (several hosts with commas), or `http://host:port` to look topics
    up over HTTP; with TLS `pulsar+ssl://` and `https://`. Options: see `ClientOptions`.
    """

    def __init__(
        self,
        url: str,
        *,
        dice: random.Random | None = None,
        clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        super().__init__(ClosedError)
        if not isinstance(url, str):
            raise InvalidOptionType(
                f"url={url!r} is not allowed: url is a text, pulsar://host:port"
            )
        self.options = build_options(ClientOptions, options, RENAMED_OPTIONS)
        self._pool = BrokerPool(self.options, is_secure=is_secure(url))
        if self.options.tls_certificate_file_path and not is_secure(url):
            raise InvalidOption(f"tls_certificate_file_path needs pulsar+ssl:// or https://: {url}")
        over_http = url.startswith(("http://", "https://"))
        lookup: Lookup = (HttpLookup if over_http else BinaryLookup)(self._pool, url, self.options)
        self._core = ClientContext(
            self.options,
            lookup,
            url,
            dice or random.Random(),  # noqa: S311 - spreads retries, guards nothing
            clock,
        )
        self._coordinators = TransactionCoordinators(self._core)

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 is one without."""
        self._check_open()
        return await self._core.lookup.partitions(full_name(topic))

    async def topics(self, namespace: str = "public/default") -> list[str]:
        """The persistent topics of a namespace, partitions one by one."""
        self._check_open()
        return await self._core.lookup.topics(namespace)

    async def producer(self, topic: str, **options: Any) -> Producer:
        """Make a producer. Options: see `ProducerOptions`.

        A topic with partitions gets one producer for each.
        """
        self._check_open()
        chosen = build_options(ProducerOptions, options, RENAMED_OPTIONS)
        full = full_name(topic)
        count = await self._core.lookup.partitions(full)
        names = [partition_name(full, number) for number in range(count)] or [full]
        parts = [TopicProducer(self._core, name, chosen) for name in names]
        router = (
            MessageRouter(count, chosen.routing, chosen.hashing, self._core.dice) if count else None
        )
        made = Producer(full, await self._attached(parts), router)
        self._track(made)
        return made

    @contextlib.asynccontextmanager
    async def transaction(self, *, timeout_s: float = TRANSACTION_S) -> AsyncIterator[Transaction]:
        """Begin a transaction that commits at the end of the block, or aborts after an error."""
        async with await self.begin_transaction(timeout_s=timeout_s) as transaction:
            yield transaction

    async def begin_transaction(self, *, timeout_s: float = TRANSACTION_S) -> Transaction:
        """Begin a transaction, which the broker aborts after `timeout_s`.

        It is for this client's producers and consumers, and is aborted when the client is closed.
        PulsarError, ServerUnreachable.
        """
        self._check_open()
        limit_s = seconds()("timeout_s", timeout_s)
        made = Transaction(self._coordinators, await self._coordinators.begin(limit_s))
        self._track(made)
        return made

    async def subscribe(
        self, topics: str | Iterable[str], subscription: str, **options: Any
    ) -> Consumer:
        """Make a consumer of a topic, or of several. Options: see `ConsumerOptions`."""
        self._check_open()
        chosen = build_options(
            ConsumerOptions, {"subscription": subscription, **options}, RENAMED_OPTIONS
        )
        names = await self._names([topics] if isinstance(topics, str) else topics)
        if len(names) > 1 and not chosen.queue_size:
            raise ClientError("a queue of 0 is for one topic without partitions")
        inbox = ReceiveQueue(self.options.entry_memory)
        parts = [TopicConsumer(self._core, name, chosen, inbox) for name in names]
        made = Consumer(self._core, await self._attached(parts), inbox)
        self._track(made)
        return made

    async def subscribe_pattern(
        self, pattern: str, subscription: str, *, period_s: float = 60.0, **options: Any
    ) -> PatternConsumer:
        """Make a consumer of all topics of a namespace that match, looked for every `period_s`."""
        self._check_open()
        chosen = build_options(
            ConsumerOptions, {"subscription": subscription, **options}, RENAMED_OPTIONS
        )
        if not chosen.queue_size:
            raise ClientError("a queue of 0 is for one topic without partitions")
        inbox = ReceiveQueue(self.options.entry_memory)

        def make(topic: str) -> TopicConsumer:
            return TopicConsumer(self._core, topic, chosen, inbox)

        made = PatternConsumer(self._core, TopicPattern(pattern), inbox, make, period_s)
        self._track(made)
        await made.begin()
        return made

    async def reader(
        self,
        topic: str,
        start: MessageId = EARLIEST,
        *,
        inclusive: bool = False,
        **options: Any,
    ) -> Reader:
        """Read from a message on: after it, or with it (`inclusive`); EARLIEST, LATEST."""
        self._check_open()
        options.setdefault("subscription", f"reader-{self._core.dice.getrandbits(40):010x}")
        chosen = build_options(ConsumerOptions, {**options, "durable": False}, RENAMED_OPTIONS)
        names = await self._names([topic])
        if len(names) > 1 and start.entry_id >= 0 and start.partition < 0 and not start.topic:
            raise ClientError(f"{topic} has partitions: begin at EARLIEST, LATEST or a whole id")
        inbox = ReceiveQueue(self.options.entry_memory)
        parts = [
            TopicConsumer(self._core, name, chosen, inbox, start, inclusive=inclusive)
            for name in names
        ]
        made = Reader(self._core, await self._attached(parts), inbox)
        self._track(made)
        return made

    async def _names(self, topics: Iterable[str]) -> list[str]:
        """The topics in full; instead of one with partitions, its partitions."""
        found: dict[str, None] = {}
        for full in map(full_name, topics):
            count = await self._core.lookup.partitions(full)
            names = [partition_name(full, number) for number in range(count)] or [full]
            found.update(dict.fromkeys(names))
        if not found:
            raise ClientError("subscribe to at least one topic")
        return list(found)

    async def _attached(self, parts: list[Part]) -> list[Part]:
        """Attach all, or close those that were and raise."""
        try:
            for at in range(0, len(parts), ATTACHED_AT_ONCE):
                some = parts[at : at + ATTACHED_AT_ONCE]
                results = await asyncio.gather(
                    *(part.attach() for part in some), return_exceptions=True
                )
                for result in results:
                    if isinstance(result, BaseException):
                        raise result
        except BaseException:
            await asyncio.gather(*(part.detach() for part in parts), return_exceptions=True)
            raise
        return parts

    async def _disconnect(self) -> None:
        await self._core.tasks.end()
        await self._pool.close()
