"""The synchronous facade: the same client on a loop in its own thread, for code without asyncio.

    with PulsarClient("pulsar://127.0.0.1:6650") as client:
        with client.producer("orders") as producer:
            producer.send(b"one")
        with client.subscribe("orders", "billing") as consumer:
            for message in consumer:
                consumer.ack(message)

Every call may be made from any thread, but from no callback of a future: those run in the loop's
thread, which cannot wait for itself. Names, options and errors are those of the asyncio client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from trilogue.client.errors import ClientError
from trilogue.client.message_bytes import MessageBytes
from trilogue.client.pulsar import client as asynchronous
from trilogue.client.pulsar.consumer.consumer import Consumer as AsyncConsumer
from trilogue.client.pulsar.errors import ClosedError, EndOfTopic
from trilogue.client.pulsar.message import EARLIEST, Message, MessageId, TxnId
from trilogue.client.pulsar.producer.producer import Producer as AsyncProducer
from trilogue.client.pulsar.transaction import Transaction as AsyncTransaction
from trilogue.client.pulsar.transaction import TransactionState
from trilogue.client.threads import (
    SyncClientFacade,
    SyncFacade,
    call_in_loop,
    failed_future,
    to_concurrent_future,
)

AT_ONCE = 1000
"""Messages that an iteration takes over from the loop at a time."""


class Producer(SyncFacade[AsyncProducer]):
    """Sends messages to one topic."""

    @property
    def name(self) -> str:
        """The name it sends under."""
        return self._inner.name

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id that is known to be stored; -1 is none."""
        return self._inner.last_sequence_id

    def send(self, value: MessageBytes | None, **more: Any) -> MessageId:
        """Send a message and wait for its receipt; more as in the asyncio client."""
        return self._loop.run(self._inner.send(value, **_unwrap(more)))

    def submit(
        self, value: MessageBytes | None, **more: Any
    ) -> concurrent.futures.Future[MessageId]:
        """Hand a message over and go on; the receipt is in the future. Waits for room only."""
        return self.submit_many([(value, more)])[0]

    def submit_many(
        self, messages: Iterable[tuple[MessageBytes | None, dict[str, Any]]]
    ) -> list[concurrent.futures.Future[MessageId]]:
        """Hand over many messages, each with its options: one change of threads for all.

        What the client itself refuses is in its message's future.
        """
        return self._loop.run(self._submit_many(list(messages)))

    async def _submit_many(
        self, messages: list[tuple[MessageBytes | None, dict[str, Any]]]
    ) -> list[concurrent.futures.Future[MessageId]]:
        futures = []
        for value, more in messages:
            try:
                inside = await self._inner.submit(value, **_unwrap(more))
                futures.append(to_concurrent_future(inside))
            except ClientError as problem:
                futures.append(failed_future(problem))
        return futures

    def flush(self) -> None:
        """Wait until everything submitted has its receipt or its error."""
        self._loop.run(self._inner.flush())


class Consumer(SyncFacade[AsyncConsumer]):
    """Receives the messages of a subscription; a reader too. What it did not ack goes to others."""

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        """The next message; the iteration ends with the topic, or when the consumer is closed."""
        try:
            return self.receive()
        except (EndOfTopic, ClosedError):
            raise StopIteration from None

    @property
    def topics(self) -> list[str]:
        """The topics and partitions it receives from, in full."""
        return self._inner.topics

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message; TimedOut, EndOfTopic."""
        return self._loop.run(self._inner.receive(timeout_s))

    def receive_many(self, most: int = AT_ONCE, timeout_s: float | None = None) -> list[Message]:
        """The messages that are there, at most so many; waits for the first one only."""
        return self._loop.run(self._inner.receive_many(most, timeout_s))

    def ack(self, what: Message | MessageId, **more: Any) -> None:
        """Acknowledge one message; more as in the asyncio client."""
        self._loop.run(self._inner.ack(what, **_unwrap(more)))

    def ack_many(self, what: Iterable[Message | MessageId], **more: Any) -> None:
        """Acknowledge many: one change of threads, and few commands, for all."""
        self._loop.run(self._ack_many(list(what), _unwrap(more)))

    async def _ack_many(self, what: list[Message | MessageId], more: dict[str, Any]) -> None:
        await asyncio.gather(*(self._inner.ack(one, **more) for one in what))

    def ack_through(self, what: Message | MessageId, **more: Any) -> None:
        """Acknowledge a message and all before it."""
        self._loop.run(self._inner.ack_through(what, **_unwrap(more)))

    def nack(self, what: Message | MessageId) -> None:
        """Have a message sent again."""
        self._loop.run(call_in_loop(self._inner.nack, what))

    def redeliver(self) -> None:
        """Have everything sent again that is not acknowledged."""
        self._loop.run(call_in_loop(self._inner.redeliver))

    def seek(
        self,
        where: MessageId | None = None,
        *,
        time_ms: int | None = None,
        inclusive: bool = False,
    ) -> None:
        """Move the subscription."""
        self._loop.run(self._inner.seek(where, time_ms=time_ms, inclusive=inclusive))

    def has_message_available(self) -> bool:
        """Whether a message is there after the last one received."""
        return self._loop.run(self._inner.has_message_available())

    def last_message_ids(self) -> list[MessageId]:
        """The id of the last message of each topic."""
        return self._loop.run(self._inner.last_message_ids())

    def stats(self) -> dict[str, Any]:
        """What the broker counts about this consumer."""
        return self._loop.run(self._inner.stats())

    def unsubscribe(self) -> None:
        """Remove the subscription."""
        self._loop.run(self._inner.unsubscribe())


class Transaction(SyncFacade[AsyncTransaction]):
    """One transaction; as a context manager it commits, or aborts after an error."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self._inner.__aexit__(kind, error, trace))

    @property
    def id(self) -> TxnId:
        """Its TxnID."""
        return self._inner.id

    @property
    def state(self) -> TransactionState:
        """How far it is."""
        return self._inner.state

    def commit(self) -> None:
        """Make all of it visible at once."""
        self._loop.run(self._inner.commit())

    def abort(self) -> None:
        """End it so that nothing of it is received."""
        self._loop.run(self._inner.abort())


def _unwrap(more: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments as the asyncio client takes them."""
    transaction = more.get("transaction")
    if not isinstance(transaction, Transaction):
        return more
    return {**more, "transaction": transaction._inner}  # noqa: SLF001 - the facade's own


class PulsarClient(SyncClientFacade[asynchronous.PulsarClient]):
    """Connections to the brokers of one cluster; options as in the asyncio client."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__("trilogue-pulsar", asynchronous.PulsarClient(url, **options), ClosedError)

    def producer(self, topic: str, **options: Any) -> Producer:
        """Make a producer."""
        return Producer(self._loop, self._loop.run(self._inner.producer(topic, **options)))

    def subscribe(self, topics: str | Iterable[str], subscription: str, **options: Any) -> Consumer:
        """Make a consumer of a topic, or of several."""
        made = self._loop.run(self._inner.subscribe(topics, subscription, **options))
        return Consumer(self._loop, made)

    def subscribe_pattern(self, pattern: str, subscription: str, **options: Any) -> Consumer:
        """Make a consumer of all topics of a namespace that match."""
        made = self._loop.run(self._inner.subscribe_pattern(pattern, subscription, **options))
        return Consumer(self._loop, made)

    def reader(self, topic: str, start: MessageId = EARLIEST, **options: Any) -> Consumer:
        """Read from a message on."""
        return Consumer(self._loop, self._loop.run(self._inner.reader(topic, start, **options)))

    @contextlib.contextmanager
    def transaction(self, **options: Any) -> Iterator[Transaction]:
        """Begin a transaction that commits at the end of the block, or aborts after an error."""
        with self.begin_transaction(**options) as transaction:
            yield transaction

    def begin_transaction(self, **options: Any) -> Transaction:
        """Begin a transaction."""
        made = self._loop.run(self._inner.begin_transaction(**options))
        return Transaction(self._loop, made)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 is one without."""
        return self._loop.run(self._inner.partitions(topic))

    def topics(self, namespace: str = "public/default") -> list[str]:
        """The persistent topics of a namespace."""
        return self._loop.run(self._inner.topics(namespace))
