"""The synchronous facade: the same client on a loop in its own thread, for code without asyncio.

    with KafkaClient("127.0.0.1:9092") as client:
        with client.producer() as producer:
            producer.send("orders", b"one", key=b"k")
        with client.consumer("orders", group="billing", reset_to=EARLIEST) as consumer:
            for message in consumer:
                print(message.value)

Every call may be made from any thread, but from no callback of a future: those run in the loop's
thread, which cannot wait for itself. Listeners of partitions run in a thread
where they may call the client. Names, options and errors are those of the asyncio client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from trilogue.client.errors import ClientError
from trilogue.client.kafka import client as asynchronous
from trilogue.client.kafka.admin.model import GroupOffset
from trilogue.client.kafka.consumer.consumer import MANY, Offsets
from trilogue.client.kafka.consumer.consumer import Consumer as AsyncConsumer
from trilogue.client.kafka.consumer.message import Message
from trilogue.client.kafka.errors import ClosedError
from trilogue.client.kafka.model import OffsetAt, Partition, PreparedTransaction
from trilogue.client.kafka.producer.batch import Sent
from trilogue.client.kafka.producer.producer import BulkRecord, HeaderPairs, Octets
from trilogue.client.kafka.producer.producer import Producer as AsyncProducer
from trilogue.client.kafka.producer.transactions import Transaction as AsyncTransaction
from trilogue.client.kafka.sync_admin import Admin
from trilogue.client.threads import (
    LoopThread,
    SyncClientFacade,
    SyncFacade,
    call_in_loop,
    failed_future,
    to_concurrent_future,
)

Pair = tuple[str, int]
Listener = Callable[[list[Partition]], None]


class Draft(NamedTuple):
    """A message for `submit_many`."""

    topic: str
    value: Octets
    key: Octets = None
    headers: HeaderPairs = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Producer(SyncFacade[AsyncProducer]):
    """Sends messages."""

    def send(
        self,
        topic: str,
        value: Octets,
        *,
        key: Octets = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Sent:
        """Send a message and wait until it is stored."""
        return self._loop.run(
            self._inner.send(
                topic, value, key=key, headers=headers, partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )  # fmt: skip

    def submit(
        self,
        topic: str,
        value: Octets,
        *,
        key: Octets = None,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> concurrent.futures.Future[Sent]:
        """Hand a message over and go on; where it is stored is the future's. Waits for room."""
        return self.submit_many([Draft(topic, value, key, headers, partition, timestamp_ms)])[0]

    def submit_many(self, drafts: Iterable[Draft]) -> list[concurrent.futures.Future[Sent]]:
        """Hand over many messages: one change of threads for all.

        What the client itself refuses is in its message's future.
        """
        return self._loop.run(self._submit_many(list(drafts)))

    async def _submit_many(self, drafts: list[Draft]) -> list[concurrent.futures.Future[Sent]]:
        futures = []
        for draft in drafts:
            topic, value, *_ = draft
            try:
                inside = await self._inner.submit(
                    topic, value, key=draft.key, headers=draft.headers,
                    partition=draft.partition, timestamp_ms=draft.timestamp_ms,
                )  # fmt: skip
                futures.append(to_concurrent_future(inside))
            except ClientError as problem:
                futures.append(failed_future(problem))
        return futures

    def send_many(
        self, topic: str, records: Sequence[bytes | BulkRecord], *, partition: int | None = None
    ) -> int:
        """Send messages and wait until all of them are stored; returns how many they are."""
        return self._loop.run(self._inner.send_many(topic, records, partition=partition))

    def transaction(self) -> Transaction:
        """Return the next transaction; one after the other."""
        return Transaction(self._loop, self._inner.transaction())

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self._loop.run(self._inner.partitions(topic))

    def flush(self) -> None:
        """Wait until the fate of everything submitted is known."""
        self._loop.run(self._inner.flush())


class Consumer(SyncFacade[AsyncConsumer]):
    """Reads topics."""

    @property
    def assignment(self) -> frozenset[Partition]:
        """The partitions that it reads now."""
        return self._loop.run(call_in_loop(lambda: self._inner.assignment))

    @property
    def paused(self) -> frozenset[Partition]:
        """Those of them that nothing is given of for now."""
        return self._loop.run(call_in_loop(lambda: self._inner.paused))

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Read these topics, or all that a pattern matches, as a member of the group."""
        self._loop.run(self._inner.subscribe(*topics, pattern=pattern))

    def assign(self, partitions: Iterable[Pair]) -> None:
        """Read these partitions and no others."""
        self._loop.run(self._inner.assign(partitions))

    def poll(self, timeout_s: float | None = None, max_messages: int = MANY) -> list[Message]:
        """The next messages; none when there are none in time."""
        return self._loop.run(self._inner.poll(timeout_s, max_messages))

    def get(self, timeout_s: float | None = None) -> Message:
        """The next message; TimedOut where none came within `timeout_s`."""
        return self._loop.run(self._inner.get(timeout_s))

    def __iter__(self) -> Iterator[Message]:
        """Message by message, until the consumer is closed."""
        while True:
            try:
                message = self.get()
            except ClosedError:
                return
            yield message

    def position(self, partition: Pair) -> int:
        """The next offset that a partition gives."""
        return self._loop.run(self._inner.position(partition))

    def seek(self, partition: Pair, offset: int) -> None:
        """Go on at an offset; also EARLIEST and LATEST."""
        self._loop.run(call_in_loop(self._inner.seek, partition, offset))

    def seek_to_time(self, partition: Pair, time_ms: int) -> None:
        """Go on at the first message of that time or a later one."""
        self._loop.run(call_in_loop(self._inner.seek_to_time, partition, time_ms))

    def pause(self, *partitions: Pair) -> None:
        """Give nothing of these for now."""
        self._loop.run(call_in_loop(self._inner.pause, *partitions))

    def resume(self, *partitions: Pair) -> None:
        """Give messages of these again."""
        self._loop.run(call_in_loop(self._inner.resume, *partitions))

    def offsets(self, wanted: Mapping[Pair, int]) -> dict[Partition, OffsetAt]:
        """The offsets of times, of EARLIEST and LATEST."""
        return self._loop.run(self._inner.offsets(wanted))

    def lag(self) -> dict[Partition, int]:
        """How many offsets are left in each partition that is read."""
        return self._loop.run(self._inner.lag())

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit offsets of the group."""
        self._loop.run(self._inner.commit(offsets))

    def committed(self, partitions: Iterable[Pair]) -> dict[Partition, GroupOffset]:
        """Where the group is."""
        return self._loop.run(self._inner.committed(partitions))


class Transaction:
    """One transaction of a producer; as a context manager it commits, or aborts after an error."""

    def __init__(self, loop: LoopThread, inner: AsyncTransaction) -> None:
        self._loop = loop
        self._inner = inner

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self._inner.__aexit__(kind, problem, trace))

    def send_positions(self, consumer: Consumer, offsets: Offsets | None = None) -> None:
        """Move the group of a consumer with this transaction."""
        self._loop.run(self._inner.send_positions(consumer._inner, offsets))  # noqa: SLF001

    def commit(self) -> None:
        """Make all of it visible at once."""
        self._loop.run(self._inner.commit())

    def prepare(self) -> PreparedTransaction:
        """Store everything, and leave it open for another process to end."""
        return self._loop.run(self._inner.prepare())

    def abort(self) -> None:
        """End it so that nothing of it is read."""
        self._loop.run(self._inner.abort())


class KafkaClient(SyncClientFacade[asynchronous.KafkaClient]):
    """Producers and consumers of one cluster; options as in the asyncio client."""

    def __init__(self, servers: str, **options: Any) -> None:
        super().__init__(
            "trilogue-kafka", asynchronous.KafkaClient(servers, **options), ClosedError
        )
        self.admin = Admin(self._loop, self._inner.admin)

    def producer(self, **options: Any) -> Producer:
        """Make a producer."""
        return Producer(self._loop, self._loop.run(self._inner.producer(**options)))

    def consumer(
        self,
        *topics: str,
        pattern: str | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        **options: Any,
    ) -> Consumer:
        """Make a consumer: of topics with a `group`, else of partitions that it is assigned."""
        made = self._inner.consumer(
            *topics, pattern=pattern, on_assigned=_in_thread(on_assigned),
            on_revoked=_in_thread(on_revoked), on_lost=_in_thread(on_lost), **options,
        )  # fmt: skip
        return Consumer(self._loop, self._loop.run(made))


def _in_thread(
    listener: Listener | None,
) -> Callable[[list[Partition]], Awaitable[None]] | None:
    """A listener that is called in a thread, where it may wait for the loop."""
    if listener is None:
        return None

    async def call(partitions: list[Partition]) -> None:
        await asyncio.to_thread(listener, partitions)

    return call
