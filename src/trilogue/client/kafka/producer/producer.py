"""The producer: takes messages, chooses partitions, returns where messages are stored.

See accumulator.py for how they wait, and sender.py for how they go.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from trilogue.client.errors import ClientError, ServerUnreachable
from trilogue.client.kafka.cluster import KafkaCluster, TopicMetadata
from trilogue.client.kafka.errors import (
    ClosedError,
    KafkaError,
    MessageTooLarge,
    QueueFull,
    TimedOut,
    TransactionAborted,
)
from trilogue.client.kafka.options import ProducerOptions, WhenFull
from trilogue.client.kafka.producer.accumulator import Accumulator, PartitionQueue
from trilogue.client.kafka.producer.batch import (
    NO_IDENTITY,
    RECORD_OVERHEAD,
    BulkDelivery,
    Headers,
    RecordDraft,
    Sent,
    encode_headers,
    record_size,
)
from trilogue.client.kafka.producer.partitioner import TopicPartitioner
from trilogue.client.kafka.producer.sender import Sender
from trilogue.client.lifecycle import AsyncCloseable
from trilogue.client.message_bytes import MessageBytes, check_topic, message_bytes
from trilogue.entry.header import HEADER_SIZE
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:  # loaded with the first transactional id
    from trilogue.client.kafka.producer.transactions import Transaction, TransactionManager

Octets = MessageBytes | None
HeaderPairs = Mapping[str, Octets] | Iterable[tuple[str, Octets]]
LATEST_MS: Final = (1 << 62) - 1
FRESH_AT_MOST: Final = 1000
"""Topics whose partitions are looked at again from time to time."""


class BulkRecord(NamedTuple):
    """A message of `send_many`."""

    value: Octets
    key: Octets = None
    headers: HeaderPairs = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Producer(AsyncCloseable):
    """Sends messages; made by `KafkaClient.producer`."""

    def __init__(
        self,
        cluster: KafkaCluster,
        options: ProducerOptions,
        lane: str,
        dice: random.Random,
        clock: Callable[[], float],
    ) -> None:
        self.options = options
        self._cluster = cluster
        self._dice = dice
        self._clock = clock
        self._check_loop()
        self._loop = asyncio.get_running_loop()
        self._accumulator = Accumulator(options)
        self._transactions: TransactionManager | None = None
        if options.transactional_id is not None:
            from trilogue.client.kafka.producer.transactions import TransactionManager

            self._transactions = TransactionManager(
                cluster,
                options.transactional_id,
                options.transaction_timeout_s,
                options.max_wait_s,
            )
        self._sender = Sender(cluster, self._accumulator, options, lane, self._transactions)
        self._partitioners: dict[str, TopicPartitioner] = {}
        self._fresh = self._loop.call_later(options.metadata_age_s, self._refresh_later)
        self._closing: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether it takes no more messages."""
        return self._closing is not None

    @property
    def bytes_waiting(self) -> int:
        """Memory of messages whose fate is not known."""
        return self._accumulator.memory.used

    async def send(
        self,
        topic: str,
        value: Octets,
        *,
        key: Octets = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Sent:
        """Send a message and wait until it is stored.

        KafkaError where the server refuses it; TimedOut leaves open whether it is stored; with
        acks=0 the server never reports it.
        """
        return await (
            await self.submit(
                topic, value, key=key, headers=headers, partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )  # fmt: skip

    async def submit(
        self,
        topic: str,
        value: Octets,
        *,
        key: Octets = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Sent]:
        """Hand a message over and go on: waits only for room, where it is stored is the future's.

        None as value is a tombstone. What the client itself refuses is raised here:
        MessageTooLarge, QueueFull, TimedOut (no room, or no such topic, within `max_wait_s`),
        ClosedError; KafkaError for a topic that cannot be.
        """
        self._check_loop()
        self._check()
        draft = self._draft(value, key, headers, timestamp_ms)
        view = self._cluster.topics.get(topic)
        if view is None:
            view = await self._wait_for_topic(topic)
            self._check()
        accumulator = self._accumulator
        if not accumulator.memory.try_allocate(draft.size):
            await self._wait_for_room(draft.size)
        future: asyncio.Future[Sent] = self._loop.create_future()
        try:
            number = self._choose(topic, view.count, draft.key, draft.size, partition)
            queue = accumulator.queue(topic, number)
            is_full = accumulator.append(queue, draft, future, self._loop.time())
        except BaseException:
            accumulator.memory.release(draft.size)
            raise
        if is_full:
            self._sender.ready(queue)
            await asyncio.sleep(0)  # a loop of submits would block other tasks
        elif not self.options.linger_s:
            self._sender.ready(queue)
        else:
            self._sender.on_linger_start()
        return future

    async def send_many(
        self, topic: str, records: Sequence[bytes | BulkRecord], *, partition: int | None = None
    ) -> int:
        """Send messages and wait until all of them are stored; returns how many they are.

        A record of bytes is a value without key. Raises what `send` raises: at once for a topic
        that cannot be, else the error of the first message that is not stored, when the fate of
        all is known. `submit_bulk` gives the errors of all messages.
        """
        delivery = await (await self.submit_bulk(topic, records, partition=partition))
        if delivery.failures:
            raise delivery.failures[min(delivery.failures)]
        return delivery.stored

    async def submit_bulk(
        self, topic: str, records: Sequence[bytes | BulkRecord], *, partition: int | None = None
    ) -> asyncio.Future[BulkDelivery]:
        """Hand many messages over and go on: waits only for room; one future is for all.

        This costs a fraction of as many calls of `submit`. `partition` is for records that name
        none. Errors of single messages are in `BulkDelivery.failures`; only an error that concerns
        them all is raised here: ClosedError, and KafkaError or TimedOut for the topic.
        """
        self._check_loop()
        self._check()
        view = self._cluster.topics.get(topic) or await self._wait_for_topic(topic)
        accumulator, limit = self._accumulator, self.options.max_request_bytes - HEADER_SIZE
        delivery = BulkDelivery(len(records), self._loop.create_future())
        begun: set[PartitionQueue] = set()
        queue: PartitionQueue | None = None
        now, now_ms = self._loop.time(), int(self._clock() * 1000)
        for index, record in enumerate(records):
            number = partition
            try:
                self._check()  # it may be closed in a wait below
                if type(record) is bytes and (size := RECORD_OVERHEAD + len(record)) <= limit:
                    draft = RecordDraft(None, record, (), now_ms, size)
                else:
                    row = record if isinstance(record, BulkRecord) else BulkRecord(record)
                    draft = self._draft(row.value, row.key, row.headers, row.timestamp_ms)
                    number = partition if row.partition is None else row.partition
                if not accumulator.memory.try_allocate(draft.size):
                    self._announce(begun)
                    queue = None
                    await self._wait_for_room(draft.size)
                    now, now_ms = self._loop.time(), int(self._clock() * 1000)
                try:
                    number = self._choose(topic, view.count, draft.key, draft.size, number)
                    if queue is None or number != queue.partition:
                        queue = accumulator.queue(topic, number)
                        begun.add(queue)
                    is_full = accumulator.append(queue, draft, (delivery, index), now)
                except BaseException:
                    accumulator.memory.release(draft.size)
                    raise
            except (QueueFull, TimedOut, ClosedError, ServerUnreachable) as problem:
                for rest in range(index, len(records)):  # there is no room for these either
                    delivery.fail_one(rest, problem)
                break
            except ClientError as problem:
                delivery.fail_one(index, problem)
                continue
            if is_full:
                self._sender.ready(queue)
                await asyncio.sleep(0)  # a long list would block other tasks
                now, now_ms = self._loop.time(), int(self._clock() * 1000)
        self._announce(begun)
        return delivery.future

    def _announce(self, queues: set[PartitionQueue]) -> None:
        """Let the sender know of queues with new records."""
        if self.options.linger_s:
            self._sender.on_linger_start()
        else:
            for queue in queues:
                self._sender.ready(queue)
        queues.clear()

    def _draft(
        self, value: Octets, key: Octets, headers: HeaderPairs, timestamp_ms: int | None
    ) -> RecordDraft:
        """Make a record of a message; ClientError or MessageTooLarge where that cannot be."""
        if timestamp_ms is None:
            timestamp_ms = int(self._clock() * 1000)
        elif not -1 <= timestamp_ms <= LATEST_MS:
            raise ClientError(f"no time in ms: {timestamp_ms}")
        key, value = _to_bytes("key", key), _to_bytes("value", value)
        packed: Headers = ()
        if headers:
            packed = encode_headers(headers.items() if isinstance(headers, Mapping) else headers)
        size = record_size(key, value, packed)
        if size + HEADER_SIZE > self.options.max_request_bytes:
            raise MessageTooLarge(f"{size} bytes, at most {self.options.max_request_bytes}")
        return RecordDraft(key, value, packed, timestamp_ms, size)

    def _check(self) -> None:
        if self._closing is not None:
            raise ClosedError("the producer is closed")
        if self._transactions is not None and not self._transactions.is_open:
            raise ClientError("begin a transaction first: async with producer.transaction()")

    def _choose(
        self, topic: str, count: int, key: bytes | None, size: int, partition: int | None
    ) -> int:
        if partition is not None:
            if not 0 <= partition < count:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
            return partition
        chooser = self._partitioners.get(topic)
        if chooser is None or chooser.count != count:
            options = self.options
            chooser = self._partitioners[topic] = TopicPartitioner(
                count, options.batch_bytes, options.hashing, options.partitioner, self._dice
            )
        return chooser.choose(key, size)

    async def _wait_for_topic(self, topic: str) -> TopicMetadata:
        """What there is to know of a topic before anything can be sent to it."""
        check_topic(topic)
        try:
            async with asyncio.timeout(self.options.max_wait_s):
                return await self._cluster.topic_metadata(topic, create=self.options.create_topics)
        except ClientError:
            raise
        except TimeoutError:
            self._cluster.check_reachable(self.options.max_wait_s)
            raise TimedOut(
                f"topic {topic}: no metadata within {self.options.max_wait_s:g} s"
            ) from None

    async def _wait_for_room(self, size: int) -> None:
        if self.options.when_full is WhenFull.RAISE:
            raise QueueFull(f"{self.bytes_waiting} bytes wait to be sent")
        try:
            async with asyncio.timeout(self.options.max_wait_s):
                await self._accumulator.memory.allocate(size)
        except ClientError:
            raise
        except TimeoutError:
            self._cluster.check_reachable(self.options.max_wait_s)
            raise TimedOut(
                f"no memory for {size} bytes within {self.options.max_wait_s:g} s"
            ) from None
        if self._closing is not None:
            self._accumulator.memory.release(size)
            raise ClosedError("the producer is closed")

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return (await self._wait_for_topic(topic)).count

    # Transactions, of a producer with a transactional id.

    def transaction(self) -> Transaction:
        """Return the next transaction; one after the other."""
        from trilogue.client.kafka.producer.transactions import Transaction

        return Transaction(self, self._manager())

    def _manager(self) -> TransactionManager:
        if self._transactions is None:
            raise ClientError("the producer has no transactional_id")
        return self._transactions

    async def begin_transaction(self) -> None:
        """Begin a transaction. The first one fences other producers of the transactional id.

        A transaction whose end is not known is aborted first, or had ended.
        """
        if self._closing is not None:
            raise ClosedError("the producer is closed")
        manager = self._manager()
        manager.check()
        if manager.is_prepared:
            raise ClientError(
                "the producer has prepared a transaction: another one begins the next"
            )
        if manager.is_open or manager.identity == NO_IDENTITY:
            await manager.initialize()
            manager.reset()
            self._sender.begin_identity(manager.identity)
        manager.is_open = True

    async def abort_transaction(self) -> None:
        """Give up what waits, and end the transaction so that nothing of it is read."""
        manager = self._manager()
        manager.check()
        self._sender.give_up_unsent(TransactionAborted("its transaction is aborted"))
        await self.flush()
        had_failed = manager.problem is not None
        await manager.end(commit=False)
        if had_failed:  # what was sent may still arrive, and numbers are missing: another epoch
            await manager.initialize()
            self._sender.begin_identity(manager.identity)

    async def flush(self) -> None:
        """Send what waits, and wait until the fate of everything submitted so far is known."""
        self._check_loop()
        queues = self._accumulator.queues.values()
        through = {queue: queue.newest for queue in queues if queue.batches or queue.in_flight}
        self._sender.flushes += 1
        try:
            for queue in through:
                self._sender.ready(queue)
            while waiting := self._accumulator.unsettled(through):
                await asyncio.wait([batch.wait() for batch in waiting])
        finally:
            self._sender.flushes -= 1

    async def close(self) -> None:
        """Wait for what is under way (`close_timeout_s`), then give the rest up."""
        self._check_loop()
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._fresh.cancel()
        problem = ClosedError("the producer is closed")
        self._accumulator.memory.close(problem)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.options.close_timeout_s):
                    await self.flush()
        finally:
            await self._sender.end(problem)

    def _refresh_later(self) -> None:
        """Refresh the metadata of topics, which may have grown."""
        self._sender.tasks.spawn(self._refresh())
        self._fresh = self._loop.call_later(self.options.metadata_age_s, self._refresh_later)

    async def _refresh(self) -> None:
        topics = {topic for topic, _ in self._accumulator.queues}
        for topic in sorted(topics)[:FRESH_AT_MOST]:
            with suppress(ClientError):
                await self._cluster.refresh([topic], needed_leaders=())


def _to_bytes(name: str, value: Octets) -> bytes | None:
    return value if value is None or type(value) is bytes else message_bytes(name, value)
