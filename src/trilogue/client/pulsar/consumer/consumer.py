"""The consumer: one attachment for each topic and partition, one receive queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from trilogue.client.errors import ClientError
from trilogue.client.lifecycle import AsyncCloseable
from trilogue.client.pulsar.attachment import ClientContext
from trilogue.client.pulsar.consumer.receive_queue import ReceiveQueue
from trilogue.client.pulsar.consumer.topic_consumer import TopicConsumer
from trilogue.client.pulsar.errors import ClosedError, EndOfTopic, TimedOut
from trilogue.client.pulsar.message import EARLIEST, LATEST, Message, MessageId
from trilogue.client.pulsar.transaction import Transaction


class Consumer(AsyncCloseable):
    """Receives the messages of a subscription; made by `PulsarClient.subscribe`."""

    def __init__(
        self, core: ClientContext, parts: list[TopicConsumer], inbox: ReceiveQueue
    ) -> None:
        self._check_loop()
        self._core = core
        self._parts = {part.topic: part for part in parts}
        self._inbox = inbox
        self.closed = False
        """Whether it receives no more."""

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        """The next message; the iteration ends with the topic, or when the consumer is closed."""
        try:
            return await self.receive()
        except (EndOfTopic, ClosedError):
            raise StopAsyncIteration from None

    @property
    def topics(self) -> list[str]:
        """The topics and partitions it receives from, in full."""
        return sorted(self._parts)

    @property
    def is_active(self) -> bool:
        """Whether a Failover subscription sends its messages to this consumer, in any topic."""
        return any(part.is_active for part in self._parts.values())

    @property
    def server_version(self) -> str:
        """What a broker calls itself, "Pulsar Server4.0.7"; "" where none is connected."""
        connections = (part.connection for part in self._parts.values())
        return next((each.server_version for each in connections if each is not None), "")

    @property
    def at_end(self) -> bool:
        """Whether every topic was terminated and all of it acknowledged."""
        return bool(self._parts) and all(part.at_end for part in self._parts.values())

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message.

        TimedOut where none came within `timeout_s`; ServerUnreachable where no broker could be
        reached meanwhile (without a time-out, within the request time-out); EndOfTopic,
        ClosedError, or the error that a topic failed with for good.
        """
        self._check_loop()
        inbox = self._inbox
        limit_s = self._core.options.request_timeout_s if timeout_s is None else timeout_s
        while not inbox.messages:
            if inbox.entries:
                await inbox.decode_next()
                continue
            try:
                async with asyncio.timeout(limit_s):
                    while inbox.is_empty:
                        self._check_progress()
                        await inbox.wait()
            except ClientError:
                raise
            except TimeoutError:
                if inbox.is_empty:
                    self._check_reachable(limit_s)
                    if timeout_s is not None:
                        raise TimedOut(f"no message within {timeout_s:g} s") from None
        message = inbox.messages.popleft()
        message.owner.on_taken(message)
        return message

    def release_taken(self) -> None:
        """Messages that were taken need no memory any more; of use with `entry_memory` only.

        The next `receive` says the same. A client inside of a server says it at once.
        """
        self._inbox.release_taken()

    async def receive_many(self, most: int, timeout_s: float | None = None) -> list[Message]:
        """The messages that are there, at most so many; waits for the first one only."""
        found = [await self.receive(timeout_s)]
        messages = self._inbox.messages
        while messages and len(found) < most:
            message = messages.popleft()
            message.owner.on_taken(message)
            found.append(message)
        return found

    def _check_reachable(self, waited_s: float) -> None:
        """Raise ServerUnreachable where no topic has had a broker for half of this time."""
        outages = [part.outage(waited_s) for part in self._parts.values()]
        if outages and all(outages) and outages[0] is not None:
            raise outages[0]

    def _check_progress(self) -> None:
        """Nothing is there: whether anything will come."""
        if self.closed:
            raise ClosedError("the consumer is closed")
        if self.at_end:
            raise EndOfTopic(f"all of {', '.join(self.topics)} is received")
        for part in self._parts.values():
            if part.failure is not None:
                raise part.failure
            part.want()

    def _find_part(self, what: Message | MessageId) -> TopicConsumer:
        if isinstance(what, Message):
            part = self._parts.get(what.topic)
            if part is not None and part is what.owner:
                return part
            what = what.id  # received by another consumer, or by this one in another life
        if what.topic in self._parts:
            return self._parts[what.topic]
        if len(self._parts) == 1:
            return next(iter(self._parts.values()))
        found = [part for topic, part in self._parts.items() if topic.endswith(
            f"-partition-{what.partition}")]  # fmt: skip
        if what.topic or len(found) != 1:
            raise ClientError(f"which of {len(self._parts)} topics is {what} of?")
        return found[0]

    async def ack(
        self, what: Message | MessageId, *, transaction: Transaction | None = None
    ) -> None:
        """Acknowledge one message. Waits for the broker only with `ack_receipts`.

        In a `transaction` it takes effect when that commits; TransactionConflict where another
        one has the message.
        """
        self._check_loop()
        part = self._find_part(what)
        if transaction is None:
            await _await_receipt(part.ack(_id(what)))
        else:
            await transaction.add_ack(part, _id(what), through=False)

    async def ack_through(
        self, what: Message | MessageId, *, transaction: Transaction | None = None
    ) -> None:
        """Acknowledge a message and all before it in its topic (not in SHARED, KEY_SHARED)."""
        self._check_loop()
        part = self._find_part(what)
        if transaction is None:
            await _await_receipt(part.ack_through(_id(what)))
        else:
            await transaction.add_ack(part, _id(what), through=True)

    def nack(self, what: Message | MessageId) -> None:
        """Have a message sent again, to whichever consumer, after `nack_delay_s`."""
        self._find_part(what).nack(_id(what))

    def redeliver(self) -> None:
        """Have everything sent again that this consumer has not acknowledged."""
        for part in self._parts.values():
            part.redeliver()

    async def seek(
        self,
        where: MessageId | None = None,
        *,
        time_ms: int | None = None,
        inclusive: bool = False,
    ) -> None:
        """Move the subscription: after a message (at it: `inclusive`), or to a publish time."""
        self._check_loop()
        if (where is None) == (time_ms is None):
            raise ClientError("seek to a message id or to a time")
        parts = list(self._parts.values())
        if where is not None and where[:2] not in {EARLIEST[:2], LATEST[:2]}:
            parts = [self._find_part(where)]
        await asyncio.gather(*(part.seek(where, time_ms, inclusive=inclusive) for part in parts))

    async def last_message_ids(self) -> list[MessageId]:
        """The id of the last message of each topic; entry id -1 where there is none."""
        self._check_loop()
        found = await asyncio.gather(*(part.last_message_id() for part in self._parts.values()))
        return [last for last, _ in found]

    async def has_message_available(self) -> bool:
        """Whether a message is there after the last one received."""
        self._check_loop()
        if not self._inbox.is_empty:
            return True
        return any(await asyncio.gather(*(part.has_next() for part in self._parts.values())))

    async def stats(self) -> dict[str, Any]:
        """What the broker counts about this consumer: CONSUMER_STATS_RESPONSE by topic."""
        self._check_loop()
        return {topic: await part.stats() for topic, part in self._parts.items()}

    async def unsubscribe(self) -> None:
        """Remove the subscription, everywhere; the consumer is closed by that."""
        self._check_loop()
        for part in self._parts.values():
            await part.unsubscribe()
        await self.close()

    async def close(self) -> None:
        """Send acknowledgements and close; other consumers get unacknowledged messages."""
        self._check_loop()
        self.closed = True
        await asyncio.gather(*(part.close() for part in self._parts.values()))
        self._inbox.wake_all()


def _id(what: Message | MessageId) -> MessageId:
    return what.id if isinstance(what, Message) else what


async def _await_receipt(receipt: asyncio.Future[None] | None) -> None:
    if receipt is not None:
        await asyncio.shield(receipt)  # others of the same turn wait for it too
