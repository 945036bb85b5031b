"""A transaction: messages and acks that take effect together or not at all.

    async with client.transaction() as transaction:
        await producer.send(b"one", transaction=transaction)
        await consumer.ack(message, transaction=transaction)

Each topic and subscription is added at the coordinator before the first message or ack in it. The
end waits for the answers to all of them; where one failed, the transaction can only be aborted.

            begin            commit                  answer
    (none) -------> OPEN ---------------> COMMITTING -------> COMMITTED
                     |                        |
                     | abort, an error        | a message or an ack failed, or it took too long
                     v                        v
                  ABORTING ---------------> ABORTED
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from enum import Enum
from types import TracebackType
from typing import Protocol

from trilogue.client.errors import ClientError
from trilogue.client.lifecycle import AsyncCloseable
from trilogue.client.pulsar.coordinators import TransactionCoordinators
from trilogue.client.pulsar.errors import PulsarError, TransactionAborted, TransactionNotFound
from trilogue.client.pulsar.message import MessageId, TxnId
from trilogue.client.pulsar.options import ConsumerOptions
from trilogue.wire.pulsar.errors import ServerError


class TransactionState(Enum):
    """How far a transaction is, as its client knows."""

    OPEN = "open"
    COMMITTING = "committing"
    """Its end was requested; without an answer `commit` may be called again."""
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


class TransactionProducer(Protocol):
    """What a transaction needs of the producer of a topic or partition."""

    topic: str

    def send_batch(self) -> None:
        """Send what waits to be sent together."""


class TransactionConsumer(Protocol):
    """What a transaction needs of the consumer of a topic or partition."""

    topic: str
    options: ConsumerOptions

    async def ack_in_transaction(self, txn_id: TxnId, id: MessageId, *, through: bool) -> None:  # noqa: A002
        """Acknowledge a message (and all before it), and wait for the broker."""

    def on_committed(self, id: MessageId, *, through: bool) -> None:  # noqa: A002
        """An ack took effect."""

    def redeliver(self) -> None:
        """Have everything sent again that is not acknowledged."""


class Transaction(AsyncCloseable):
    """One transaction; as a context manager it commits, or aborts after an error."""

    def __init__(self, coordinators: TransactionCoordinators, txn_id: TxnId) -> None:
        self.id = txn_id
        self.state = TransactionState.OPEN
        self._coordinators = coordinators
        self._topics: set[str] = set()
        self._subscriptions: set[tuple[str, str]] = set()
        self._producers: dict[TransactionProducer, None] = {}
        self._acks: list[tuple[TransactionConsumer, MessageId, bool]] = []
        self._unanswered = 0
        self._answered = asyncio.Event()
        self._problem: BaseException | None = None
        self._was_closed = False

    def __repr__(self) -> str:
        return f"Transaction({self.id}, {self.state.value})"

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        problem: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if problem is None and (self.state is TransactionState.OPEN or self._was_closed):
            await self.commit()
        elif self.state is TransactionState.OPEN:
            await self.abort()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.state in {TransactionState.COMMITTED, TransactionState.ABORTED}

    async def commit(self) -> None:
        """Make all of it visible at once.

        TransactionAborted where a message or an ack failed, or the broker has aborted it.
        ServerUnreachable, TransactionNotFound: its end is not known; the first one may pass.
        """
        if self.state is TransactionState.COMMITTED:
            return
        self._check_state(TransactionState.OPEN, TransactionState.COMMITTING)
        await self._settle(TransactionState.COMMITTING)
        if self._problem is not None:
            await self._abort()
            raise self._aborted(self._problem) from self._problem
        try:
            await self._coordinators.end(self.id, commit=True)
        except PulsarError as problem:
            if problem.error is not ServerError.InvalidTxnStatus:
                raise
            self.state = TransactionState.ABORTED
            raise self._aborted(problem) from problem
        self.state = TransactionState.COMMITTED
        for consumer, message_id, through in self._acks:
            consumer.on_committed(message_id, through=through)

    async def abort(self) -> None:
        """End it so that nothing of it is received; what it acked is sent again."""
        if self.state is TransactionState.ABORTED:
            return
        self._check_state(TransactionState.OPEN, TransactionState.ABORTING)
        await self._settle(TransactionState.ABORTING)
        await self._abort()

    async def close(self) -> None:
        """Abort it where it is open; called when the client is closed."""
        if self.state in {TransactionState.OPEN, TransactionState.ABORTING}:
            self._was_closed = True
            await self.abort()

    async def add_message(
        self,
        producer: TransactionProducer,
        enqueue: Callable[[], Awaitable[asyncio.Future[MessageId]]],
    ) -> asyncio.Future[MessageId]:
        """Add the topic of a producer, and let it take a message; for `Producer.send`."""
        self._check_state(TransactionState.OPEN)
        self._unanswered += 1
        try:
            if producer.topic not in self._topics:
                await self._coordinators.add_topic(self.id, producer.topic)
                self._topics.add(producer.topic)
            self._producers[producer] = None
            future = await enqueue()
        except BaseException as problem:
            self._on_answer(problem)
            raise
        future.add_done_callback(self._on_receipt)
        if self.state is not TransactionState.OPEN:  # its end waits for this one
            producer.send_batch()
        return future

    async def add_ack(
        self,
        consumer: TransactionConsumer,
        id: MessageId,  # noqa: A002 - as everywhere
        *,
        through: bool,
    ) -> None:
        """Add the subscription of a consumer, and acknowledge; for `Consumer.ack`."""
        self._check_state(TransactionState.OPEN)
        self._unanswered += 1
        problem: BaseException | None = None
        try:
            place = consumer.topic, consumer.options.subscription
            if place not in self._subscriptions:
                await self._coordinators.add_subscription(self.id, *place)
                self._subscriptions.add(place)
            await consumer.ack_in_transaction(self.id, id, through=through)
            self._acks.append((consumer, id, through))
        except BaseException as failed:
            problem = failed
            raise
        finally:
            self._on_answer(problem)

    def _on_receipt(self, future: asyncio.Future[MessageId]) -> None:
        if future.cancelled():
            self._on_answer(ClientError("a message was cancelled: it may be stored or not"))
        else:
            self._on_answer(future.exception())

    def _on_answer(self, problem: BaseException | None) -> None:
        self._problem = self._problem or problem
        self._unanswered -= 1
        self._answered.set()

    async def _settle(self, state: TransactionState) -> None:
        """Take nothing more, and wait for the answers to everything; after a cancel it is open."""
        self.state = state
        for producer in self._producers:
            producer.send_batch()
        try:
            while self._unanswered:
                self._answered.clear()
                await self._answered.wait()
        except asyncio.CancelledError:
            self.state = TransactionState.OPEN
            raise

    async def _abort(self) -> None:
        self.state = TransactionState.ABORTING
        with contextlib.suppress(TransactionNotFound):  # it took too long, and is forgotten
            await self._coordinators.end(self.id, commit=False)
        self.state = TransactionState.ABORTED
        # A real broker does not by itself send again what was acked up to a message.
        for consumer in {consumer for consumer, _, through in self._acks if through}:
            consumer.redeliver()

    def _check_state(self, *allowed: TransactionState) -> None:
        if self.state is TransactionState.ABORTED:
            raise self._aborted(self._problem)
        if self.state not in allowed:
            raise ClientError(f"transaction {self.id} is {self.state.value}")

    def _aborted(self, problem: BaseException | None) -> TransactionAborted:
        why = f": {str(problem) or repr(problem)}" if problem is not None else ""
        return TransactionAborted(f"transaction {self.id} was aborted{why}")
