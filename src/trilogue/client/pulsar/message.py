"""Received messages; the ids of messages and of transactions."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from google.protobuf.message import DecodeError

from trilogue.client.errors import ClientError
from trilogue.wire.pulsar.message_types import Metadata, SingleMessage
from trilogue.wire.pulsar.pulsar_pb2 import MessageIdData

UINT64: Final = (1 << 64) - 1
LATEST_PLACE: Final = (1 << 63) - 1


class MessageId(NamedTuple):
    """The id of a message; ids of one partition sort in the order of its messages.

    A ledger id and entry id of -1 stand before everything (`EARLIEST`) and, in what `send`
    returns, for a message that the broker had before (de-duplication).
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1
    partition: int = -1
    batch_size: int = 0
    topic: str = ""
    """The topic of the partition, in full; "" in ids that came from bytes."""
    first_chunk: tuple[int, int] | None = None
    """Ledger id and entry id of the first chunk, where the message came in chunks."""

    @property
    def place(self) -> tuple[int, int, int]:
        """What orders the ids of one partition."""
        return self.ledger_id, self.entry_id, self.batch_index

    def data(self) -> MessageIdData:
        """The id as it stands in commands."""
        data = MessageIdData(ledgerId=self.ledger_id & UINT64, entryId=self.entry_id & UINT64)
        if self.partition >= 0:
            data.partition = self.partition
        if self.batch_index >= 0:
            data.batch_index = self.batch_index
        if self.batch_size > 0:
            data.batch_size = self.batch_size
        if self.first_chunk is not None:
            data.first_chunk_message_id.ledgerId = self.first_chunk[0] & UINT64
            data.first_chunk_message_id.entryId = self.first_chunk[1] & UINT64
        return data

    def to_bytes(self) -> bytes:
        """Write the id as other clients do, to be kept and read back by any of them."""
        return self.data().SerializeToString()

    @classmethod
    def from_bytes(cls, octets: bytes) -> MessageId:
        """Read what `to_bytes`, or another client, wrote."""
        try:
            return cls.of(MessageIdData.FromString(octets))
        except DecodeError as problem:
            raise ClientError(f"no message id: {problem}") from problem

    @classmethod
    def of(cls, data: MessageIdData, topic: str = "") -> MessageId:
        """Read an id out of a command."""
        first = None
        if data.HasField("first_chunk_message_id"):
            chunk = data.first_chunk_message_id
            first = signed(chunk.ledgerId), signed(chunk.entryId)
        return cls(
            signed(data.ledgerId), signed(data.entryId), data.batch_index, data.partition,
            max(0, data.batch_size), topic, first,
        )  # fmt: skip


class TxnId(NamedTuple):
    """The id of a transaction: its most bits are the number of its coordinator."""

    most: int
    least: int

    def __str__(self) -> str:
        return f"({self.most},{self.least})"


def signed(value: int) -> int:
    """A uint64 of the wire as the number that it stands for."""
    return value - (1 << 64) if value > LATEST_PLACE else value


EARLIEST: Final = MessageId(-1, -1)
LATEST: Final = MessageId(LATEST_PLACE, LATEST_PLACE)


class MessageOwner(Protocol):
    """The consumer of one topic that received a message."""

    def on_taken(self, message: Message) -> None:
        """The application has the message: its permit goes back to the broker."""

    def ack_through(self, id: MessageId) -> object:  # noqa: A002 - the name in every client
        """Acknowledge this message and all before it."""


class Message:
    """A received message; properties are decoded on access."""

    __slots__ = ("id", "metadata", "owner", "redelivery_count", "single")

    def __init__(
        self,
        id: MessageId,  # noqa: A002 - the name in every client
        single: SingleMessage,
        metadata: Metadata,
        redelivery_count: int,
        owner: MessageOwner,
    ) -> None:
        self.id = id
        self.single = single
        self.metadata = metadata
        self.redelivery_count = redelivery_count
        self.owner = owner

    def __repr__(self) -> str:
        return f"Message({self.topic} {self.id.place}, {len(self.value or b'')} bytes)"

    @property
    def value(self) -> bytes | None:
        """The payload; None is a tombstone (null_value)."""
        return self.single.value

    @property
    def topic(self) -> str:
        """The full name of the topic, with `-partition-X` where it has partitions."""
        return self.id.topic

    @property
    def key(self) -> str | None:
        """The partition key as text; base64 where the producer gave bytes."""
        return self.single.partition_key

    @property
    def key_bytes(self) -> bytes | None:
        """The partition key as bytes: what the producer gave, or its text in UTF-8."""
        return self.single.key

    @property
    def ordering_key(self) -> bytes | None:
        """What Key_Shared goes by, before the key."""
        return self.single.ordering_key

    @property
    def properties(self) -> dict[str, str]:
        """The application's own names and values; of a repeated name the last counts."""
        return dict(self.single.properties)

    @property
    def event_time_ms(self) -> int:
        """The event time of the application; 0 without one."""
        return self.single.event_time

    @property
    def publish_time_ms(self) -> int:
        """When its producer sent it."""
        return self.metadata.publish_time

    @property
    def producer_name(self) -> str:
        """The name of the producer."""
        return self.metadata.producer_name

    @property
    def sequence_id(self) -> int:
        """Which of its producer's messages it is."""
        if self.single.sequence_id >= 0:
            return self.single.sequence_id
        return self.metadata.sequence_id + max(0, self.id.batch_index)

    @property
    def schema_version(self) -> bytes | None:
        """Which version of the topic's schema it was written with, as the broker numbers them."""
        return self.metadata.schema_version

    @property
    def replicated_from(self) -> str | None:
        """The cluster it was copied from."""
        return self.metadata.replicated_from
