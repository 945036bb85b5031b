"""One consumer of one connection: a member of a subscription that can be sent messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trilogue.broker.member import NO_EPOCH, Member
from trilogue.entry.pulsar_batch import broker_time
from trilogue.gateway.pulsar.old_clients import BATCHES_SINCE, send_singles
from trilogue.gateway.pulsar.positions import ack_set_of
from trilogue.gateway.pulsar.reading import Row
from trilogue.gateway.stream import Buffer
from trilogue.wire.pulsar.frame import BROKER_ENTRY_MAGIC
from trilogue.wire.pulsar.hot import message_head
from trilogue.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection
    from trilogue.gateway.pulsar.dispatch import Dispatcher

CHECKSUM_SINCE = 6
CHECKSUM_BYTES = 6  # 0e01 and the checksum, at the head of a section
BROKER_ENTRY_SINCE = 18
ACTIVE_CHANGE_SINCE = 12


@dataclass(slots=True, eq=False, kw_only=True)
class Consumer(Member):
    """A consumer, from the SUBSCRIBE that made it; without a dispatcher it is still being made."""

    connection: PulsarConnection
    consumer_id: int
    sends_epoch: bool = False  # it said one, so it wants it in messages
    dispatcher: Dispatcher | None = None
    closed: bool = False
    durable: bool = True
    connected_ms: int = 0
    read_compacted: bool = False
    takes_any_schema: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    said: int = 0  # about how many bytes those and its key ranges are
    end_told: bool = False  # that no more messages will come
    was_active: bool | None = None  # what it was told last
    bad_messages: int = 0  # that it could not read

    @property
    def address(self) -> str:
        """Where it is."""
        host, port = self.connection.stream.peer[:2]
        return f"/{host}:{port}"

    # ---- as something attached to a connection

    def gone(self) -> None:
        """The connection is closed."""
        self.closed = True
        if self.dispatcher is not None:
            self.dispatcher.leave(self)

    def writable(self) -> None:
        """The connection takes messages again."""
        if self.waits and self.dispatcher is not None:
            self.dispatcher.go_on(self)

    # ---- sending

    def send(
        self,
        row: Row,
        redeliveries: int,
        missing: list[tuple[int, int]] | None,
    ) -> int:
        """Send an item as one message; returns the bytes of its section.

        `missing` is which offsets of it are not acked; None: all of them.
        """
        version = self.connection.protocol_version
        if version < BATCHES_SINCE and row.is_batch:
            left = [(row.base, row.end)] if missing is None else missing
            return send_singles(self, row, redeliveries, left)
        ack_set: tuple[int, ...] = ()
        if missing is not None and row.is_batch:
            ack_set = ack_set_of(row.base, row.end, missing)
        front = b""
        if self.connection.features.supports_broker_entry_metadata:
            front = self._broker_entry(row)
        assert row.section is not None, "nothing to be seen"
        return self.send_section(row.section, row.base, redeliveries, ack_set, front)

    def send_section(
        self,
        section: Buffer,
        offset: int,
        redeliveries: int,
        ack_set: tuple[int, ...] = (),
        front: bytes = b"",
    ) -> int:
        """Send a section under an id; returns its bytes."""
        connection, dispatcher = self.connection, self.dispatcher
        assert dispatcher is not None, "who takes part is sent something"
        size = len(section)
        if connection.protocol_version < CHECKSUM_SINCE:
            section = memoryview(section)[CHECKSUM_BYTES:]
            size -= CHECKSUM_BYTES
            front = b""
        head = message_head(
            self.consumer_id,
            dispatcher.partition.partition_id,
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

    def _broker_entry(self, row: Row) -> bytes:
        """What clients that declare it are told of an entry: when it came, its last offset."""
        settings = self.connection.door.settings
        is_told = settings.tells_timestamp or settings.tells_index
        if not is_told or self.connection.protocol_version < BROKER_ENTRY_SINCE:
            return b""
        said = BrokerEntryMetadata()
        if settings.tells_timestamp and row.flags >= 0:  # of a converted one nobody noted it
            said.broker_timestamp = broker_time(row.entry)
        if settings.tells_index:
            said.index = row.end - 1
        octets = said.SerializeToString()
        return BROKER_ENTRY_MAGIC + len(octets).to_bytes(4, "big") + octets
