"""The consumer: batches of messages, each confirmed or rolled back as a whole.

batch = await consumer.get()            pull
await consumer.confirm(batch)           or consumer.rollback(batch)

async for message in consumer: ...      a pack is confirmed when its last message was left
await consumer.run(callback)            push; confirmed when the callback returns
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

from trilogue.client.errors import ClientError, InvalidOption
from trilogue.client.message_bytes import check_topic
from trilogue.client.tubemq.client_balance import ClientBalance
from trilogue.client.tubemq.errors import ClosedError, TubeError
from trilogue.client.tubemq.message import Message
from trilogue.client.tubemq.options import Balance, ConsumerOptions
from trilogue.client.tubemq.partition_reader import PartitionReader
from trilogue.client.tubemq.partition_state import Batch, Offsets, PartitionState
from trilogue.client.tubemq.server_balance import BalanceStrategy, ServerBalance, wait_confirmed
from trilogue.client.tubemq.server_connections import ServerConnections
from trilogue.client.tubemq.session import ClientContext, MasterSession, new_client_id
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import CloseRequestC2M, CloseResponseM2C

log = logging.getLogger("trilogue.client.tubemq")
Callback = Callable[[Batch], Awaitable[bool | None]]
Topics = str | Iterable[str] | Mapping[str, Iterable[str]]


class Consumer(MasterSession):
    """Reads the partitions that are its own; made by `TubeClient.consumer`."""

    KIND = "consumer"

    def __init__(
        self,
        core: ClientContext,
        servers: ServerConnections,
        group: str,
        topics: Topics,
        options: ConsumerOptions,
    ) -> None:
        by_server = options.balance is Balance.SERVER
        kind = "Pull" if by_server else "Balance"
        super().__init__(core, servers, new_client_id(core, group, kind))
        self.group = group
        self.topics = parse_topics(topics)
        self.options = options
        self.reading = PartitionReader(self, group, self.topics, options)
        self._client_balance = None if by_server else ClientBalance(self)
        self._balance: BalanceStrategy = self._client_balance or ServerBalance(self)

    # The master.

    async def _register_once(self) -> None:
        await self._balance.register()

    async def _heartbeat_once(self) -> None:
        await self._balance.send_heartbeat()

    @property
    def _needs_heartbeat(self) -> bool:
        return self._balance.needs_heartbeat

    async def start(self) -> None:
        """Register; the first heartbeat follows at once."""
        await super().start()
        self.spawn(self.reading.run_heartbeats())
        self.wake()

    async def release(self, helds: list[PartitionState]) -> None:
        """Give partitions back, once what the application has of them is confirmed."""
        if helds:
            wait_s = self.options.release_wait_s
            await wait_confirmed(helds, wait_s, self.reading.settled)
            async with self.reading.lock:
                await self.reading.unregister_all(helds)

    def _on_failed(self) -> None:
        self.reading.wake_all()

    async def _leave(self) -> None:
        async with self.reading.lock:
            await self.reading.unregister_all(self.reading.holding.all())
        async with self.lock:
            if not self._registered:
                return
            request = CloseRequestC2M(
                clientId=self.client_id,
                groupName=self.group,
                authInfo=self.credentials.for_master(),
            )
            await self.request_master("consumerCloseClientC2M", request, CloseResponseM2C)

    # Reading.

    async def get(self, timeout_s: float | None = None) -> Batch:
        """The next pack of messages, of one partition; no other of it comes before it is settled.

        NoMessage when there is none in time; TubeError, a refusal of the broker that lasts;
        UnknownEvent, BadFrame, and what ended the consumer.
        """
        return await self.reading.get(timeout_s)

    async def confirm(self, batch: Batch) -> None:
        """Confirm a batch: the group continues after it.

        TubeError where this consumer no longer holds the partition: the batch may come again.
        """
        self.check()
        await self.reading.settle(batch, consumed=True)

    async def rollback(self, batch: Batch) -> None:
        """Return a batch: it comes again."""
        self.check()
        await self.reading.settle(batch, consumed=False)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Message by message, until the consumer is closed.

        A pack is confirmed after its last message, and rolled back when the loop is left before.
        """
        while True:
            try:
                batch = await self.get()
            except ClosedError:
                return
            done = False
            try:
                for message in batch:
                    yield message
                done = True
            finally:
                if not self.closed:
                    with suppress(ClientError):  # it comes again
                        await self.reading.settle(batch, consumed=done)

    async def run(self, callback: Callback, *, at_once: int = 1) -> None:
        """Call back with pack after pack, until the consumer is closed or fails.

        A pack is confirmed when the callback returns, rolled back when it returns False or raises.
        At most `at_once` callbacks run at a time, never two for one partition.
        """
        if at_once < 1:
            raise InvalidOption(f"at_once={at_once} is not allowed: at least one callback runs")
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(self._call_back(callback))
        except ExceptionGroup as found:  # one error ended the others: no group for one mistake
            raise found.exceptions[0] from None

    async def _call_back(self, callback: Callback) -> None:
        while True:
            try:
                batch = await self.get()
            except ClosedError:
                return
            try:
                consumed = await callback(batch) is not False
            except (Exception, asyncio.CancelledError) as problem:
                if _is_cancelled(problem):
                    raise
                log.exception("tubemq.callback_failed", extra={"partition": batch.partition})
                consumed = False
            try:
                await self.reading.settle(batch, consumed=consumed)
            except ClientError as problem:  # the batch comes again, or the next get raises
                log.info(
                    "tubemq.not_settled",
                    extra={"partition": batch.partition, "problem": str(problem)},
                )

    # Where it is.

    @property
    def partitions(self) -> list[str]:
        """The keys of the partitions that are this consumer's now."""
        return [held.key for held in self.reading.holding.all()]

    def offsets(self) -> dict[str, Offsets]:
        """The offsets of the group in each of them, as the broker last reported them."""
        return self.reading.offsets()

    async def set_offset(self, partition: str, offset: int) -> None:
        """Go on reading a partition at an offset; what is in hand of it cannot be confirmed."""
        self.check()
        await self.reading.move(partition, offset)

    def pause(self, *partitions: str) -> None:
        """Get nothing from some partitions for now."""
        self.reading.pause(partitions, paused=True)

    def resume(self, *partitions: str) -> None:
        """Get messages from them again."""
        self.reading.pause(partitions, paused=False)

    # Where the application balances.

    def available(self) -> list[str]:
        """The keys of all partitions that may be read (not where the server balances)."""
        return [place.key for place in self._own_balance().places()]

    async def connect(self, partition: str, offset: int | None = None) -> None:
        """Read a partition from where the group was, or from an offset on; TubeError.

        410 where another consumer of the group reads it.
        """
        self.check()
        balance = self._own_balance()
        place = next((one for one in balance.places() if one.key == partition), None)
        if place is None:
            raise TubeError(TubeCode.PARTITION_NOT_SUBSCRIBABLE, "not there", partition)
        async with self.reading.lock:
            await self.reading.register(place, offset)
        balance.changed()

    async def disconnect(self, partition: str) -> None:
        """Read a partition no more."""
        self.check()
        balance, held = self._own_balance(), self.reading.holding.get(partition)
        if held is not None:
            async with self.reading.lock:
                await self.reading.unregister_all([held])
            balance.changed()

    def _own_balance(self) -> ClientBalance:
        if self._client_balance is None:
            raise ClientError("the server assigns the partitions of this consumer")
        return self._client_balance


def parse_topics(topics: Topics) -> dict[str, frozenset[str]]:
    """Topics as an application may give them, with the types of message that are wanted of each."""
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        topics = [topics]
    if not isinstance(topics, Mapping):
        topics = dict.fromkeys(topics, ())
    for topic in topics:
        check_topic(topic)
    found = {topic: frozenset(filters) for topic, filters in topics.items()}
    if not found or not all(topic.strip() for topic in found):
        raise TubeError(TubeCode.BLANK_TOPIC, "a consumer reads at least one topic", "consumer")
    if any("," in one or not one.strip() for filters in found.values() for one in filters):
        raise ClientError("a filter is the type of a message: not blank, and without ','")
    return found


def _is_cancelled(problem: BaseException) -> bool:
    """Whether this task is cancelled, and not only something that the callback waited for."""
    task = asyncio.current_task()
    is_this_task = task is not None and task.cancelling() > 0
    return isinstance(problem, asyncio.CancelledError) and is_this_task
