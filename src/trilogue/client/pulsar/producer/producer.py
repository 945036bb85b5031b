"""The producer: one attachment for each partition, and the choice among them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping

from trilogue.client.lifecycle import AsyncCloseable
from trilogue.client.message_bytes import MessageBytes, check_texts, message_bytes
from trilogue.client.pulsar.message import MessageId, TxnId
from trilogue.client.pulsar.producer.message_router import MessageRouter
from trilogue.client.pulsar.producer.topic_producer import TopicProducer
from trilogue.client.pulsar.transaction import Transaction
from trilogue.wire.pulsar.message_types import SingleMessage

Properties = Mapping[str, str] | Iterable[tuple[str, str]]


class Producer(AsyncCloseable):
    """Sends messages to one topic; made by `PulsarClient.producer`."""

    def __init__(
        self, topic: str, parts: list[TopicProducer], router: MessageRouter | None
    ) -> None:
        self._check_loop()
        self.topic = topic
        self._parts = parts
        self._router = router

    @property
    def closed(self) -> bool:
        """Whether it sends no more."""
        return all(part.closed for part in self._parts)

    @property
    def name(self) -> str:
        """The name it sends under: the one it was given, or the broker's invention."""
        return self._parts[0].name

    @property
    def partitions(self) -> int:
        """How many partitions the topic had when the producer was made; 0 is one without."""
        return 0 if self._router is None else len(self._parts)

    @property
    def schema_version(self) -> bytes:
        """The version of its schema in the topic, as the broker numbers them; b"" without one."""
        return self._parts[0].schema_version

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id that is known to be stored; -1 is none."""
        return max(part.last_sequence_id for part in self._parts)

    async def send(
        self,
        value: MessageBytes | None,
        *,
        key: MessageBytes | None = None,
        properties: Properties = (),
        ordering_key: bytes | None = None,
        event_time_ms: int = 0,
        sequence_id: int | None = None,
        deliver_at_ms: int = 0,
        deliver_after_ms: int = 0,
        transaction: Transaction | None = None,
    ) -> MessageId:
        """Send a message and wait for its receipt: it is stored now, and this is where.

        A value of None is a tombstone. A key of bytes travels as base64, as in other clients.
        Concurrent sends share batches. In a `transaction` it is received when that commits.
        TimedOut, PulsarError, MessageTooLarge, ClosedError, TransactionAborted.
        """
        future = await self.submit(
            value, key=key, properties=properties, ordering_key=ordering_key,
            event_time_ms=event_time_ms, sequence_id=sequence_id,
            deliver_at_ms=deliver_at_ms, deliver_after_ms=deliver_after_ms,
            transaction=transaction,
        )  # fmt: skip
        return await future

    async def submit(
        self,
        value: MessageBytes | None,
        *,
        key: MessageBytes | None = None,
        properties: Properties = (),
        ordering_key: bytes | None = None,
        event_time_ms: int = 0,
        sequence_id: int | None = None,
        deliver_at_ms: int = 0,
        deliver_after_ms: int = 0,
        transaction: Transaction | None = None,
    ) -> asyncio.Future[MessageId]:
        """Hand a message over and go on: waits only for room, the receipt is in the future."""
        self._check_loop()
        if value is not None and type(value) is not bytes:
            value = message_bytes("value", value)
        pairs = tuple(properties.items() if isinstance(properties, Mapping) else properties)
        check_texts("properties", pairs)
        if key is not None and not isinstance(key, str | bytes):
            key = message_bytes("key", key)
        single = SingleMessage(
            -1,
            value,
            base64.b64encode(key).decode() if isinstance(key, bytes) else key,
            isinstance(key, bytes),
            False,
            ordering_key,
            event_time_ms,
            -1 if sequence_id is None else sequence_id,
            pairs,
        )
        if deliver_after_ms:
            clock = self._parts[0].core.clock
            deliver_at_ms = int(clock() * 1000) + deliver_after_ms
        part = self._find_part(single)
        if transaction is None:
            return await self._enqueue(part, single, deliver_at_ms)
        return await transaction.add_message(
            part, lambda: self._enqueue(part, single, deliver_at_ms, transaction.id)
        )

    async def _enqueue(
        self,
        part: TopicProducer,
        single: SingleMessage,
        deliver_at_ms: int,
        txn_id: TxnId | None = None,
    ) -> asyncio.Future[MessageId]:
        if part.waiting >= part.options.max_pending:
            part.send_batch()
            await part.room()
        future, sent = part.enqueue(single, deliver_at_ms, txn_id)
        if sent and self._router is not None and single.partition_key is None:
            self._router.turn()
        return future

    def _find_part(self, single: SingleMessage) -> TopicProducer:
        if self._router is None:
            return self._parts[0]
        if single.partition_key is not None:
            return self._parts[self._router.partition_of_key(single.partition_key)]
        return self._parts[self._router.keyless_partition]

    async def flush(self) -> None:
        """Send what waits, and wait until everything submitted has its receipt or its error."""
        self._check_loop()
        await asyncio.gather(*(part.flush() for part in self._parts))

    async def close(self) -> None:
        """Wait for what is under way, then close."""
        self._check_loop()
        await asyncio.gather(*(part.close() for part in self._parts))
