"""Receives from one topic without partitions, or from one partition, whatever happens in between.

The broker may send as many messages as it was given permits for: a queue's length at first, then
half of it whenever half was taken out (seed 000, flow control). After a reconnection everything
that nobody acknowledged comes again, so what waits in the queue is dropped.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from trilogue.client.errors import ClientError, ConnectionLost, Unsupported
from trilogue.client.pulsar.acknowledging import ORDERED, Acknowledging
from trilogue.client.pulsar.acks import Place, mask_of
from trilogue.client.pulsar.attached import LASTING_S, Core, log
from trilogue.client.pulsar.chunks import Chunks
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.decode import (
    DECRYPTION,
    Opened,
    decompressed,
    guessed_count,
    one_single,
    open_section,
    singles,
)
from trilogue.client.pulsar.errors import BadMessage, ClosedError
from trilogue.client.pulsar.inbox import Inbox
from trilogue.client.pulsar.message import EARLIEST, LATEST, Message, MessageId, signed
from trilogue.client.pulsar.options import ConsumerOptions, SubscriptionType
from trilogue.client.pulsar.subscribing import Start, command_of
from trilogue.client.pulsar.topics import partition_number
from trilogue.wire.errors import WireError
from trilogue.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandFlow,
    CommandGetLastMessageId,
    CommandSeek,
    CommandUnsubscribe,
)
from trilogue.wire.pulsar.shapes import Delivery, Metadata, Single

RECEIPTS_SINCE, KEY_SHARED_SINCE = 17, 14

MOST_UNASKED: Final = 1_000_000
"""Messages that may wait beyond the queue: a batch is never split, and a broker may miscount."""


class Entry(NamedTuple):
    """What the messages of an entry have in common."""

    place: Place
    size: int
    """How many messages the batch has; 0 is no batch."""
    metadata: Metadata
    redelivery_count: int
    first_chunk: Place | None


class TopicConsumer(Acknowledging):
    """A consumer as the broker knows it; what it receives goes into an inbox."""

    def __init__(
        self,
        core: Core,
        topic: str,
        options: ConsumerOptions,
        inbox: Inbox,
        start: MessageId | None = None,
        *,
        inclusive: bool = False,
    ) -> None:
        super().__init__(core, topic, options)
        self.name = options.name or f"{core.dice.getrandbits(20):05x}"
        self.at_end = False
        self.is_active = options.type is not SubscriptionType.FAILOVER
        self._inbox = inbox
        self._partition = partition_number(topic)
        self.start = Start(start, inclusive=inclusive) if start is not None else None
        self._skip = self.start
        self._taken: MessageId | None = None
        self._chunks = Chunks(options.max_pending_chunked, core.options.max_decompressed_size)
        self._owed = 0
        self._wanted = False
        self._first_time = True

    # Receiving.

    def on_message(self, delivery: Delivery, section: memoryview) -> None:
        """Take an entry apart; a bad one is acknowledged with what is wrong with it."""
        if self.connection is None:
            return  # of a consumer that was before: it will come again
        if len(self._inbox.messages) > 2 * self.options.queue_size + MOST_UNASKED:
            raise WireError("more messages than were asked for")
        octets = memoryview(bytes(section))
        place = signed(delivery.ledger_id), signed(delivery.entry_id)
        count = 1
        try:
            opened = open_section(octets)
            if opened.metadata.is_batch:
                count = opened.metadata.num_messages
            if 0 <= delivery.consumer_epoch < self.epoch:
                self._used(count)  # sent before we asked for everything again
                return
            self._on_entry(place, delivery, opened)
        except BadMessage as bad:
            log.warning("pulsar.bad-message topic=%s place=%s why=%s", self.topic, place, bad)
            if bad.validation_error != DECRYPTION:  # somebody with the key may read that
                self._refuse(place, bad.validation_error)
            self._used(max(1, min(guessed_count(octets), self.options.queue_size)), now=True)

    def _on_entry(self, place: Place, delivery: Delivery, opened: Opened) -> None:
        metadata, limit = opened.metadata, self.core.options.max_decompressed_size
        payload: bytes | memoryview = opened.payload
        first: Place | None = None
        if metadata.is_chunk:
            joined = self._chunks.add(place, opened)
            if joined is None:
                self._used(1)
                return
            payload, places = joined
            self._acks.joined(place, places)
            first = places[0]
        whole = decompressed(metadata, payload, limit)
        if not metadata.is_batch:
            found = [one_single(metadata, opened.properties, whole)]
            self._deliver(Entry(place, 0, metadata, delivery.redelivery_count, first), found, 1)
            return
        size = metadata.num_messages
        found = list(singles(metadata, whole))
        every = (1 << size) - 1
        broker_left = mask_of(delivery.ack_set) & every if delivery.ack_set else every
        present = broker_left
        if len(found) != size:  # the others were compacted out
            present &= sum(1 << one.batch_index for one in found)
        left = self._acks.arrived(place, size, present)
        if left != every:
            found = [one for one in found if left >> one.batch_index & 1]
        # Those that the broker knew as acknowledged cost no permit.
        entry = Entry(place, size, metadata, delivery.redelivery_count, None)
        self._deliver(entry, found, broker_left.bit_count())

    def _deliver(self, entry: Entry, found: list[Single], permits: int) -> None:
        """Put the messages of an entry, which cost the broker so many permits, into the inbox."""
        place, size, metadata, count, first = entry
        if self._skip is not None:
            found = self._skipped(place, size, found)
        self._wanted = False
        if not found:
            self._used(permits)
            if size:  # all of it was acknowledged, or compacted away
                self._acks.add_entry(place)
                self._soon()
            return
        topic, partition = self.topic, self._partition
        self._inbox.put(
            Message(
                MessageId(*place, one.batch_index, partition, size, topic, first),
                one, metadata, count, self,
            )
            for one in found
        )  # fmt: skip
        self._used(permits - len(found))

    def _skipped(self, place: Place, size: int, found: list[Single]) -> list[Single]:
        """Leave out what is before the start; acknowledge it, or it would come for ever."""
        assert self._skip is not None
        kept = []
        for one in found:
            if self._skip.is_before(place, one.batch_index):
                self._ack_quietly(MessageId(*place, one.batch_index, batch_size=size))
            else:
                kept.append(one)
        if kept:
            self._skip = None
        return kept

    def taken(self, message: Message) -> None:
        """The application has a message: its permit goes back, with others."""
        self._taken = message.id
        self._used(1)

    def want(self) -> None:
        """Somebody waits: where nothing is received ahead, ask for one message."""
        if not self.options.queue_size and not self._wanted and self.connection is not None:
            self._wanted = True
            self._flow(1)

    def _used(self, count: int, *, now: bool = False) -> None:
        self._owed += count
        if not self.options.queue_size:
            self._owed = 0
            self._wanted = False
            if self._inbox.has_waiting and not self._inbox.messages:
                self.want()
        elif self._owed and (now or 2 * self._owed >= self.options.queue_size):
            permits, self._owed = self._owed, 0
            if self.connection is not None:
                self._flow(permits)

    def _flow(self, permits: int) -> None:
        if self.connection is not None and self.connection.is_open:
            flow = CommandFlow(consumer_id=self.id, messagePermits=permits)
            self.connection.send(BaseCommand(type=BaseCommand.FLOW, flow=flow))

    def on_end(self) -> None:
        """The topic was terminated and everything in it acknowledged."""
        self.at_end = True
        self._inbox.wake_all()

    def on_active(self, active: bool) -> None:
        """It is, or is no longer, this consumer's turn."""
        self.is_active = active

    def redeliver(self) -> None:
        """Have everything sent again that is not acknowledged."""
        if self.options.type in ORDERED:
            self.epoch += 1
        self._chunks.clear()
        self.forget_nacks()
        dropped = self._inbox.drop(self)
        self._redeliver([])
        self._used(dropped)

    # Asking.

    async def _ask(self, field: str, command: Any, about: str) -> Any:
        """Send a request of this consumer to where it is attached and wait for the answer."""
        await self.attached_again()
        connection = self.connection
        if connection is None:
            raise ConnectionLost(f"{about} {self.topic}: not attached")
        command.consumer_id = self.id
        command.request_id = connection.new_request_id()
        base = BaseCommand(type=BaseCommand.DESCRIPTOR.fields_by_name[field].number)  # type: ignore[arg-type]
        getattr(base, field).CopyFrom(command)
        return await connection.request(command.request_id, base, f"{about} {self.topic}")

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        """The id of the last message of the topic, and the position of the subscription."""
        answer = await self._ask("getLastMessageId", CommandGetLastMessageId(), "last id of")
        mark = None
        if answer.HasField("consumer_mark_delete_position"):
            mark = MessageId.of(answer.consumer_mark_delete_position, self.topic)
        return MessageId.of(answer.last_message_id, self.topic), mark

    async def has_next(self) -> bool:
        """Whether there is a message after the one that the application took last."""
        if any(message.owner is self for message in self._inbox.messages):
            return True
        last, mark = await self.last_message_id()
        if last.entry_id < 0:
            return False
        if self._taken is not None:
            return last.place > self._taken.place
        if self.start is not None and self.start.id != LATEST:
            end = last.place if last.batch_index >= 0 else (*last.place[:2], -1)
            return not self.start.is_before(end[:2], end[2])
        return mark is not None and last.place[:2] > mark.place[:2]

    async def stats(self) -> Any:
        """What the broker counts about this consumer (CONSUMER_STATS)."""
        return await self._ask("consumerStats", CommandConsumerStats(), "stats of")

    async def seek(
        self,
        id: MessageId | None,  # noqa: A002 - as everywhere
        time_ms: int | None = None,
        *,
        inclusive: bool = False,
    ) -> None:
        """Move the subscription: after a message (or to it), or to the first published by a time.

        The broker closes the consumer; it is created again, and begins at the new position.
        """
        command = CommandSeek()
        start = None
        if id is not None:
            command.message_id.CopyFrom(Start(id, inclusive=inclusive).data())
            command.message_id.ClearField("batch_index")
            start = None if id in {EARLIEST, LATEST} else Start(id, inclusive=inclusive)
        elif time_ms is not None:
            command.message_publish_time = time_ms
        await self.attached_again()
        connection, self._since = self.connection, -LASTING_S
        await self._ask("seek", command, "seek on")
        self._forget_all()
        self._skip = start
        if not self.options.durable:
            self.start = Start(id if id is not None else EARLIEST, inclusive=inclusive)
        if self.connection is connection:
            self.recreate(now=True)
        await self.attached_again()

    def _forget_all(self) -> None:
        self._acks.clear()
        self.forget_nacks()
        self._chunks.clear()
        self._inbox.drop(self)
        self._taken = None
        self.at_end = False

    async def unsubscribe(self) -> None:
        """Remove the subscription from the topic; this consumer ends with it."""
        await self._ask("unsubscribe", CommandUnsubscribe(), "unsubscribe from")
        if self.connection is not None:
            self._strike(self.connection)
            self.connection = None
        self.closed = True
        self.forget_nacks()
        self._leave(ClosedError(f"consumer of {self.topic} was unsubscribed"))
        self._inbox.wake_all()

    async def close(self) -> None:
        """Tell what was acknowledged, and close at the broker."""
        if self.closed:
            return
        self.flush_acks()
        self.forget_nacks()
        await self.detach()
        self._inbox.drop(self)
        self._leave(ClosedError(f"consumer of {self.topic} was closed"))
        self._inbox.wake_all()

    # The hold on the broker.

    def _enlist(self, connection: PulsarConnection) -> None:
        connection.consumers[self.id] = self

    def _strike(self, connection: PulsarConnection) -> None:
        if connection.consumers.get(self.id) is self:
            del connection.consumers[self.id]

    def _creation(self, connection: PulsarConnection, request_id: int) -> BaseCommand:
        options, version = self.options, connection.protocol_version
        if options.ack_receipts and version < RECEIPTS_SINCE:
            raise Unsupported(f"ack receipts need protocol {RECEIPTS_SINCE}, here is {version}")
        if options.type is SubscriptionType.KEY_SHARED and version < KEY_SHARED_SINCE:
            raise Unsupported(f"KEY_SHARED needs protocol {KEY_SHARED_SINCE}, here is {version}")
        start = self.start
        if not options.durable and self._taken is not None:
            start = self._skip = Start(self._taken)
        command = command_of(options, self.topic, start, first_time=self._first_time)
        command.consumer_id = self.id
        command.request_id = request_id
        command.consumer_name = self.name
        if options.type in ORDERED:
            command.consumer_epoch = self.epoch
        return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=command)

    def _closing(self, request_id: int) -> BaseCommand:
        command = CommandCloseConsumer(consumer_id=self.id, request_id=request_id)
        return BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=command)

    def _on_attached(self, _connection: PulsarConnection) -> None:
        self._first_time = False
        self._owed = 0
        self._wanted = False
        self.flush_acks()  # before the permits: what is acknowledged need not come again
        if self.options.queue_size:
            self._flow(self.options.queue_size)
        elif self._inbox.has_waiting:
            self.want()

    def _on_detached(self) -> None:
        self._inbox.drop(self)
        self._chunks.clear()
        self.forget_nacks()

    def _on_failed(self, problem: ClientError) -> None:
        log.warning("pulsar.consumer-failed topic=%s problem=%s", self.topic, problem)
        if self.connection is not None:
            self._strike(self.connection)
            self.connection = None
        self._leave(problem)
        self._inbox.wake_all()
