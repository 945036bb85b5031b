"""A consumer of one connection: a member of a subscription that can be sent messages.

Clients below protocol version 4 know no batches. For them each message of a batch becomes a message
of its own, uncompressed, whose entry id is its offset; such a client acks the ids that it got, so
its acks are of messages (acks.py). The batch is decompressed on the loop: no client of such a
version has been released for years, and a thread for them is not worth its cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from trilogue.broker.subscriptions.consumer import NO_EPOCH, SubscriptionConsumer
from trilogue.entry.entry import EntryError
from trilogue.entry.pulsar.layout import PART_HEAD_SIZE
from trilogue.entry.pulsar.pulsar_batch import (
    broker_time,
    build_entry,
    build_single,
    read_metadata,
    walk_messages,
)
from trilogue.gateway.pulsar.entry_reader import DispatchEntry
from trilogue.gateway.pulsar.message_ids import encode_ack_set
from trilogue.gateway.pulsar.services import ClientConnection
from trilogue.gateway.stream import Buffer
from trilogue.wire.pulsar.frame import BROKER_ENTRY_MAGIC
from trilogue.wire.pulsar.message_codec import encode_message_head
from trilogue.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata, MessageMetadata

# Protocol versions.
BATCHES_SINCE: Final = 4
CHECKSUM_SINCE: Final = 6
ACTIVE_CHANGE_SINCE: Final = 12
BROKER_ENTRY_SINCE: Final = 18

CHECKED_MAX: Final = 100  # consumers in the way of another one: whether they are alive


class ConsumerDispatcher(Protocol):
    """What a consumer needs of the dispatcher of its subscription (dispatcher.py)."""

    ledger_id: int  # of its message ids
    index: int

    def leave(self, consumer: Any) -> None:
        """Remove a consumer from the subscription."""

    def resume(self, consumer: Any) -> None:
        """Send to a consumer again that could take nothing."""


DispatcherT = TypeVar("DispatcherT", bound=ConsumerDispatcher)


class Consumer(SubscriptionConsumer, Generic[DispatcherT], eq=False, kw_only=True):
    """A consumer, from its SUBSCRIBE on; without a dispatcher it is still being created."""

    connection: ClientConnection
    consumer_id: int
    sends_epoch: bool = False  # the client named an epoch, so its messages carry one
    dispatcher: DispatcherT | None = None
    closed: bool = False
    durable: bool = True
    connected_ms: int = 0
    last_flow_ms: int = 0  # when it last gave permits
    read_compacted: bool = False
    takes_any_schema: bool = False
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    metadata_size: int = 0  # about how many bytes its metadata and key ranges are
    end_sent: bool = False  # REACHED_END_OF_TOPIC was sent
    was_active: bool | None = None  # the newest ACTIVE_CONSUMER_CHANGE
    bad_messages: int = 0  # that the client could not read

    @property
    def address(self) -> str:
        """The client's address, as Java writes it."""
        host, port = self.connection.stream.peer[:2]
        return f"/{host}:{port}"

    # ---- what the connection calls

    def gone(self) -> None:
        """Leave the subscription, because the connection is closed."""
        self.closed = True
        if self.dispatcher is not None:
            self.dispatcher.leave(self)

    def writable(self) -> None:
        """The connection takes messages again."""
        if self.waits and self.dispatcher is not None:
            self.dispatcher.resume(self)

    # ---- sending

    @property
    def takes_sections(self) -> bool:
        """Whether it is sent sections as they are: its version knows checksums, and no more."""
        connection = self.connection
        if connection.protocol_version < CHECKSUM_SINCE:
            return False
        settings = connection.gateway.settings
        adds_metadata = settings.adds_broker_timestamp or settings.adds_entry_index
        return not (adds_metadata and connection.features.supports_broker_entry_metadata)

    def send(
        self,
        entry: DispatchEntry,
        redeliveries: int,
        missing: list[tuple[int, int]] | None,
    ) -> int:
        """Send an entry as one message; return the bytes of its section.

        `missing` are the offsets of it that are not acked, as ranges; None: all of them.
        """
        version = self.connection.protocol_version
        if version < BATCHES_SINCE and entry.is_batch:
            left = [(entry.base, entry.end)] if missing is None else missing
            return self._send_singles(entry, redeliveries, left)
        ack_set: tuple[int, ...] = ()
        if missing is not None and entry.is_batch:
            ack_set = encode_ack_set(entry.base, entry.end, missing)
        front = b""
        if self.connection.features.supports_broker_entry_metadata:
            front = self._encode_broker_entry(entry)
        assert entry.section is not None, "a hidden entry is not sent"
        return self._send_section(entry.section, entry.base, redeliveries, ack_set, front)

    def _send_section(
        self,
        section: Buffer,
        offset: int,
        redeliveries: int,
        ack_set: tuple[int, ...] = (),
        front: bytes = b"",
    ) -> int:
        connection, dispatcher = self.connection, self.dispatcher
        assert dispatcher is not None, "only a member of a subscription is sent messages"
        size = len(section)
        if connection.protocol_version < CHECKSUM_SINCE:
            section = memoryview(section)[PART_HEAD_SIZE:]
            size -= PART_HEAD_SIZE
            front = b""
        head = encode_message_head(
            self.consumer_id,
            dispatcher.ledger_id,
            offset,
            dispatcher.index,
            redeliveries,
            ack_set,
            self.epoch if self.sends_epoch else NO_EPOCH,
            size,
            front,
        )
        connection.write(head)
        connection.write(section)
        return size

    def _encode_broker_entry(self, entry: DispatchEntry) -> bytes:
        """Return the broker entry metadata of an entry: when it came, and its last offset."""
        settings = self.connection.gateway.settings
        is_sent = settings.adds_broker_timestamp or settings.adds_entry_index
        if not is_sent or self.connection.protocol_version < BROKER_ENTRY_SINCE:
            return b""
        metadata = BrokerEntryMetadata()
        if settings.adds_broker_timestamp and not entry.is_converted:
            metadata.broker_timestamp = broker_time(entry.stored)
        if settings.adds_entry_index:
            metadata.index = entry.end - 1
        octets = metadata.SerializeToString()
        return BROKER_ENTRY_MAGIC + len(octets).to_bytes(4, "big") + octets

    def _send_singles(
        self, entry: DispatchEntry, redeliveries: int, missing: list[tuple[int, int]]
    ) -> int:
        """Send the messages of a batch that are not acked; return the bytes of their sections."""
        try:
            sections = _split_batch(entry)
        except EntryError as problem:  # encrypted, for one: this client could not read it
            self.connection.stream.abort("consumer.knows_no_batches", problem=str(problem))
            return 0
        size = 0
        for start, end in missing:
            for offset in range(start, end):
                section = sections.get(offset)
                if section is not None:
                    size += self._send_section(section, offset, redeliveries)
        return size


def send_active_change(consumer: Consumer[DispatcherT], *, is_active: bool) -> None:
    """Send ACTIVE_CONSUMER_CHANGE to a consumer that does not know it yet."""
    if consumer.was_active is is_active:
        return
    consumer.was_active = is_active
    if consumer.connection.protocol_version >= ACTIVE_CHANGE_SINCE:
        consumer.connection.send_command(
            "active_consumer_change", consumer_id=consumer.consumer_id, is_active=is_active
        )


def check_alive(consumers: Iterable[Consumer[Any]]) -> None:
    """Look whether some consumers, which keep another one out, are alive."""
    for each in islice(consumers, CHECKED_MAX):
        each.connection.check_alive()


def _split_batch(entry: DispatchEntry) -> dict[int, bytes]:
    """Return a section for each message of a batch, by offset; EntryError."""
    assert entry.section is not None, "a hidden entry is not sent"
    stored, header, _ = build_entry(entry.section, broker_ms=0)
    whole = read_metadata(stored)
    sections = {}
    for message in walk_messages(stored, header):
        metadata = MessageMetadata(
            producer_name=whole.producer_name,
            sequence_id=(whole.sequence_id + message.batch_index) % (1 << 64),
            publish_time=whole.publish_time,
        )
        sections[entry.base + message.batch_index] = build_single(message, metadata)
    return sections
