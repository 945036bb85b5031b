"""The commands and metadata that message_codec.py and batch_reader.py return."""

from __future__ import annotations

from base64 import b64decode
from typing import NamedTuple


class Send(NamedTuple):
    """SEND; its section begins at `section_at` of the frame."""

    producer_id: int
    sequence_id: int
    num_messages: int
    highest_sequence_id: int
    is_chunk: bool
    marker: bool
    txn_least: int
    txn_most: int
    section_at: int


class Flow(NamedTuple):
    """FLOW: how many more messages a consumer takes."""

    consumer_id: int
    permits: int


class AckId(NamedTuple):
    """An id in an ACK. Bits that are set in `ack_set` are *not* acknowledged; () = all are."""

    ledger_id: int
    entry_id: int
    batch_index: int
    ack_set: tuple[int, ...]
    batch_size: int


class Ack(NamedTuple):
    """ACK. `ack_type` 0 individual, 1 cumulative; -1 stands for an absent field."""

    consumer_id: int
    ack_type: int
    ids: list[AckId]
    validation_error: int
    request_id: int
    txn_least: int
    txn_most: int
    properties: tuple[tuple[str, int], ...]


class Receipt(NamedTuple):
    """SEND_RECEIPT: the id of the message; ledger and entry are 2**64 - 1 for a duplicate."""

    producer_id: int
    sequence_id: int
    highest_sequence_id: int
    ledger_id: int
    entry_id: int


class Delivery(NamedTuple):
    """MESSAGE; its section begins at `section_at` of the frame, an epoch of -1 is none."""

    consumer_id: int
    ledger_id: int
    entry_id: int
    partition: int
    batch_index: int
    redelivery_count: int
    ack_set: tuple[int, ...]
    consumer_epoch: int
    section_at: int


class Metadata(NamedTuple):
    """MessageMetadata without its lists (see `read_properties`). None and -1: absent.

    `is_batch` is the presence of num_messages_in_batch, which alone decides how a payload is read.
    """

    producer_name: str
    sequence_id: int
    publish_time: int
    event_time: int
    compression: int
    uncompressed_size: int
    num_messages: int
    is_batch: bool
    highest_sequence_id: int
    partition_key: str | None
    key_is_b64: bool
    null_key: bool
    ordering_key: bytes | None
    null_value: bool
    uuid: str | None
    chunk_id: int
    num_chunks: int
    total_chunk_size: int
    has_txn: bool
    txn_least: int
    txn_most: int
    marker_type: int
    deliver_at_time: int
    schema_version: bytes | None
    schema_id: bytes | None
    has_encryption: bool
    replicated_from: str | None
    has_properties: bool

    @property
    def is_chunk(self) -> bool:
        """True when the payload is a piece of a message."""
        return self.num_chunks > 1

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id: absent and 0 mean the only one."""
        return self.highest_sequence_id or self.sequence_id


class SingleMessage(NamedTuple):
    """One message of a batch. A value of None is a null value; `sequence_id` -1 is none."""

    batch_index: int
    value: bytes | None
    partition_key: str | None
    key_is_b64: bool
    null_key: bool
    ordering_key: bytes | None
    event_time: int
    sequence_id: int
    properties: tuple[tuple[str, str], ...]

    @property
    def key(self) -> bytes | None:
        """The key as bytes: text in UTF-8, or the decoded base64 text."""
        return key_of(self.partition_key, is_b64=self.key_is_b64)


def key_of(partition_key: str | None, *, is_b64: bool) -> bytes | None:
    """Return the bytes of a key; text that is not valid base64 is encoded as it is."""
    if partition_key is None:
        return None
    octets = partition_key.encode()
    if is_b64:
        try:
            return b64decode(octets, validate=True)
        except ValueError:
            return octets
    return octets


def sticky_key(metadata: Metadata) -> bytes:
    """Return the key that selects the Key_Shared consumer of a message.

    The ordering key, else the key, else the producer's name and the sequence id, so that messages
    without a key spread. A batch has the keys of its first message.
    """
    if metadata.ordering_key is not None:
        return metadata.ordering_key
    key = key_of(metadata.partition_key, is_b64=metadata.key_is_b64)
    if key is not None:
        return key
    return f"{metadata.producer_name}-{metadata.sequence_id}".encode()
