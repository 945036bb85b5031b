"""The consumer of one topic without partitions, or of one partition, over reconnections.

The broker may send as many messages as it was given permits for: a queue's length at first, then
half of it whenever half was taken out (flow control). After a reconnection every
unacknowledged message comes again, so the queue is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from trilogue.client.errors import ClientError, Unsupported
from trilogue.client.pulsar.attachment import LASTING_S, ClientContext
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.consumer.ack_sender import ORDERED, AckSender
from trilogue.client.pulsar.consumer.ack_tracker import (
    EntryPosition,
    bits_to_mask,
    has_bit,
    words_to_mask,
)
from trilogue.client.pulsar.consumer.chunk_assembler import BegunMessage, ChunkAssembler
from trilogue.client.pulsar.consumer.pending_entry import PendingEntry, ReceivedEntry
from trilogue.client.pulsar.consumer.receive_queue import ReceiveQueue
from trilogue.client.pulsar.consumer.subscribe_command import StartPosition, build_subscribe
from trilogue.client.pulsar.errors import BadMessage, ClosedError
from trilogue.client.pulsar.message import EARLIEST, LATEST, Message, MessageId, signed
from trilogue.client.pulsar.options import ConsumerOptions, SubscriptionType
from trilogue.client.pulsar.section import (
    DECRYPTION,
    Section,
    decompress_payload,
    estimate_count,
    read_section,
    read_single,
    read_singles,
)
from trilogue.client.pulsar.topic_names import partition_number
from trilogue.wire.errors import WireError
from trilogue.wire.pulsar.message_types import Delivery, SingleMessage
from trilogue.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandCloseConsumer,
    CommandConsumerStats,
    CommandFlow,
    CommandGetLastMessageId,
    CommandSeek,
    CommandUnsubscribe,
)

log = logging.getLogger("trilogue.client.pulsar")
RECEIPTS_SINCE, KEY_SHARED_SINCE = 17, 14

MAX_UNREQUESTED: Final = 1_000_000
"""Messages that may wait beyond the queue: a batch is never split, and a broker may miscount."""


class TopicConsumer(AckSender):
    """A consumer as the broker knows it; received messages go into a ReceiveQueue."""

    def __init__(
        self,
        core: ClientContext,
        topic: str,
        options: ConsumerOptions,
        inbox: ReceiveQueue,
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
        self.start = StartPosition(start, inclusive=inclusive) if start is not None else None
        self._skip = self.start
        self._taken: MessageId | None = None
        self._taken_at_attach: MessageId | None = None
        self._resume_at: EntryPosition | None = None
        self._chunks = ChunkAssembler(
            options.max_pending_chunked, core.options.max_decompressed_size
        )
        self._owed = 0
        self._wanted = False
        self._first_time = True

    # Receiving.

    def on_message(self, delivery: Delivery, section: memoryview) -> None:
        """Take in an entry; an unexpected error ends the consumer, and `receive` raises it."""
        try:
            self._take_entry(delivery, section)
        except (WireError, ClientError):
            raise
        except Exception as problem:
            log.exception("pulsar.entry_failed topic=%s", self.topic)
            self.fail(ClientError(f"an entry of {self.topic} cannot be read: {problem!r}"))

    def _take_entry(self, delivery: Delivery, section: memoryview) -> None:
        """Take an entry apart; a bad one is acknowledged with what is wrong with it."""
        if self.connection is None:
            return  # of a consumer that was before: it will come again
        if len(self._inbox) > 2 * self.options.queue_size + MAX_UNREQUESTED:
            raise WireError("more messages than permits")
        octets = self._keep(section)
        place = signed(delivery.ledger_id), signed(delivery.entry_id)
        count = 1
        try:
            opened = read_section(octets)
            if opened.metadata.is_batch:
                count = opened.metadata.num_messages
            if 0 <= delivery.consumer_epoch < self.epoch:
                self._return_permits(count)  # sent before the redelivery of everything
                return
            self._on_entry(place, delivery, opened)
        except BadMessage as bad:
            self._refuse_entry(place, bad, estimate_count(octets))

    def _keep(self, section: memoryview) -> memoryview:
        """Return a section that stays valid after its callback."""
        if self._inbox.memory is None or self.connection is None:
            return memoryview(bytes(section))
        return self.connection.keep_frame(section)

    def _on_entry(self, place: EntryPosition, delivery: Delivery, opened: Section) -> None:
        metadata, limit = opened.metadata, self.core.options.max_decompressed_size
        payload: bytes | memoryview = opened.payload
        first: EntryPosition | None = None
        if metadata.is_chunk:
            joined = self._join_chunk(place, opened)
            if joined is None:
                self._return_permits(1)
                return
            payload, places = joined
            self._acks.on_chunks_joined(place, places)
            first = places[0]
        size = metadata.num_messages if metadata.is_batch else 0
        entry = ReceivedEntry(place, size, metadata, delivery.redelivery_count, first)
        if self._inbox.memory is not None:
            section = opened._replace(payload=memoryview(payload))
            self._check_room(
                self._inbox.put_entry(PendingEntry(self, entry, delivery, section, limit))
            )
            return
        whole = decompress_payload(metadata, payload, limit)
        if not size:
            self.deliver(entry, [read_single(metadata, opened.properties, whole)], 1)
            return
        found = list(read_singles(metadata, whole))
        every = (1 << size) - 1
        broker_left = words_to_mask(delivery.ack_set) & every if delivery.ack_set else every
        absent = 0
        if len(found) != size:  # the others were compacted out
            absent = every & ~bits_to_mask((one.batch_index for one in found), size)
        left = self.find_unacked(place, size, broker_left, absent)
        if left != every:
            bits = left.to_bytes(size // 8 + 1, "little")
            found = [one for one in found if has_bit(bits, one.batch_index)]
        # Those that the broker knew as acknowledged cost no permit.
        self.deliver(entry, found, broker_left.bit_count())

    def _join_chunk(
        self, place: EntryPosition, opened: Section
    ) -> tuple[bytes, tuple[EntryPosition, ...]] | None:
        before = self._chunks.size_bytes
        joined = self._chunks.add(place, opened)
        self._check_room(self._inbox.count_chunks(self._chunks.size_bytes - before))
        return joined

    def _forget_chunks(self) -> None:
        self._inbox.count_chunks(-self._chunks.size_bytes)
        self._chunks.clear()

    def _check_room(self, has_room: bool) -> None:
        if not has_room:
            self._inbox.drop(self)
            self.fail(ClientError(f"no memory for entries of {self.topic}"))

    def find_unacked(self, place: EntryPosition, size: int, broker: int, absent: int) -> int:
        """Return the messages of a batch that are not acknowledged, as bits."""
        return self._acks.on_batch_received(place, size, broker, absent)

    def refuse_entry(self, entry: PendingEntry, problem: BadMessage) -> None:
        """Acknowledge an entry that cannot be read."""
        self._refuse_entry(entry.entry.place, problem, entry.permits)

    def _refuse_entry(self, place: EntryPosition, bad: BadMessage, count: int) -> None:
        log.warning("pulsar.bad-message topic=%s place=%s why=%s", self.topic, place, bad)
        if bad.validation_error != DECRYPTION:  # a consumer with the key may read that
            self._ack_bad_entry(place, bad.validation_error)
        self._return_permits(max(1, min(count, self.options.queue_size)), now=True)

    def deliver(self, entry: ReceivedEntry, found: Sequence[SingleMessage], permits: int) -> None:
        """Put the messages of an entry, which cost the broker so many permits, into the inbox."""
        place, size, metadata, count, first = entry
        if self._skip is not None:
            found = self._skip_before_start(place, size, found)
        self._wanted = False
        if not found:
            self._return_permits(permits)
            if self._acks.has_news:  # all of it was acknowledged, or compacted away
                self._schedule_flush()
            return
        topic, partition = self.topic, self._partition
        self._inbox.put(
            Message(
                MessageId(*place, one.batch_index, partition, size, topic, first),
                one, metadata, count, self,
            )
            for one in found
        )  # fmt: skip
        self._return_permits(permits - len(found))

    def _skip_before_start(
        self, place: EntryPosition, size: int, found: Sequence[SingleMessage]
    ) -> list[SingleMessage]:
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

    def on_taken(self, message: Message) -> None:
        """The application has a message: its permit goes back, with others."""
        self._taken = message.id
        self._return_permits(1)

    def want(self) -> None:
        """Request one message for a waiting receiver, where the queue size is 0."""
        if not self.options.queue_size and not self._wanted and self.connection is not None:
            self._wanted = True
            self._flow(1)

    def _return_permits(self, count: int, *, now: bool = False) -> None:
        self._owed += count
        if not self.options.queue_size:
            self._owed = 0
            self._wanted = False
            if self._inbox.has_waiting and self._inbox.is_empty:
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
        self._forget_chunks()
        self.forget_nacks()
        dropped = self._inbox.drop(self)
        self._redeliver([])
        self._return_permits(dropped)

    def begun_messages(self) -> list[BegunMessage]:
        """Return the messages in chunks that have begun, and that the application does not have."""
        whole = [
            BegunMessage(each.metadata.producer_name, each.id.first_chunk, each.id[:2])
            for each in self._inbox.messages
            if each.owner is self and each.id.first_chunk is not None
        ]
        whole += [
            BegunMessage(
                each.entry.metadata.producer_name, each.entry.first_chunk, each.entry.place
            )
            for each in self._inbox.entries
            if each.owner is self and each.entry.first_chunk is not None
        ]
        return whole + self._chunks.begun()

    # Requests.

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        """The id of the last message of the topic, and the position of the subscription."""
        answer = await self._request("getLastMessageId", CommandGetLastMessageId(), "last id of")
        mark = None
        if answer.HasField("consumer_mark_delete_position"):
            mark = MessageId.of(answer.consumer_mark_delete_position, self.topic)
        return MessageId.of(answer.last_message_id, self.topic), mark

    async def has_next(self) -> bool:
        """Whether there is a message after the one that the application took last."""
        inbox = self._inbox
        if any(each.owner is self for each in inbox.messages):
            return True
        if any(each.owner is self for each in inbox.entries):
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
        return await self._request("consumerStats", CommandConsumerStats(), "stats of")

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
            command.message_id.CopyFrom(StartPosition(id, inclusive=inclusive).data())
            command.message_id.ClearField("batch_index")
            start = None if id in {EARLIEST, LATEST} else StartPosition(id, inclusive=inclusive)
        elif time_ms is not None:
            command.message_publish_time = time_ms
        await self.wait_reattached()
        connection, self._since = self.connection, -LASTING_S
        await self._request("seek", command, "seek on")
        self._forget_all()
        self._skip = start
        if not self.options.durable:
            self.start = StartPosition(id if id is not None else EARLIEST, inclusive=inclusive)
        if self.connection is connection:
            self.recreate(now=True)
        await self.wait_reattached()

    def _forget_all(self) -> None:
        self._acks.clear()
        self.forget_nacks()
        self._forget_chunks()
        self._inbox.drop(self)
        self._taken = self._resume_at = None
        self.at_end = False

    async def unsubscribe(self) -> None:
        """Remove the subscription from the topic; this consumer ends with it."""
        await self._request("unsubscribe", CommandUnsubscribe(), "unsubscribe from")
        if self.connection is not None:
            self._unregister_events(self.connection)
            self.connection = None
        self.closed = True
        self.forget_nacks()
        self._fail_receipt(ClosedError(f"consumer of {self.topic} was unsubscribed"))
        self._inbox.wake_all()

    async def close(self) -> None:
        """Send acknowledgements and close at the broker."""
        if self.closed:
            return
        self.flush_acks()
        self.forget_nacks()
        await self.detach()
        self._inbox.drop(self)
        self._fail_receipt(ClosedError(f"consumer of {self.topic} was closed"))
        self._inbox.wake_all()

    # The hold on the broker.

    def _register_events(self, connection: PulsarConnection) -> None:
        connection.consumers[self.id] = self

    def _unregister_events(self, connection: PulsarConnection) -> None:
        if connection.consumers.get(self.id) is self:
            del connection.consumers[self.id]

    def _create_command(self, connection: PulsarConnection, request_id: int) -> BaseCommand:
        options, version = self.options, connection.protocol_version
        if options.ack_receipts and version < RECEIPTS_SINCE:
            raise Unsupported(f"ack receipts need protocol {RECEIPTS_SINCE}, here is {version}")
        if options.type is SubscriptionType.KEY_SHARED and version < KEY_SHARED_SINCE:
            raise Unsupported(f"KEY_SHARED needs protocol {KEY_SHARED_SINCE}, here is {version}")
        start = self.start
        if not options.durable and self._taken is not None:
            start = self._skip = StartPosition(self._taken)
            if self._resume_at is not None and self._resume_at < self._taken[:2]:
                start = StartPosition(MessageId(*self._resume_at), inclusive=True)
        self._taken_at_attach = self._taken
        command = build_subscribe(options, self.topic, start, first_time=self._first_time)
        command.consumer_id = self.id
        command.request_id = request_id
        command.consumer_name = self.name
        if options.type in ORDERED:
            command.consumer_epoch = self.epoch
        return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=command)

    def _close_command(self, request_id: int) -> BaseCommand:
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
        if not self.options.durable:
            self._note_begun()
        self._inbox.drop(self)
        self._forget_chunks()
        self.forget_nacks()

    def _note_begun(self) -> None:
        """Remember the first chunk from which on a reader has to be sent everything again."""
        found = [each.first for each in self.begun_messages()]
        if self._resume_at is not None and self._taken is self._taken_at_attach:
            found.append(self._resume_at)  # not all may have come again since then
        self._resume_at = min(found, default=None)

    def _on_failed(self, problem: ClientError) -> None:
        log.warning("pulsar.consumer-failed topic=%s problem=%s", self.topic, problem)
        if self.connection is not None:
            self._unregister_events(self.connection)
            self.connection = None
        self._fail_receipt(problem)
        self._inbox.wake_all()
