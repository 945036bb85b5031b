"""Turns messages into the sections of SENDs: single, in a batch, or cut into chunks.

Compressed as a whole, a batch too, and always with the size before compression.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from trilogue.client.pulsar.message import TxnId
from trilogue.client.pulsar.options import ProducerOptions
from trilogue.entry.pulsar.pulsar_batch import build_batch, build_section, build_single
from trilogue.wire.pulsar.message_types import SingleMessage
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata

OVERHEAD: Final = 32
"""Bytes that a message takes in a batch beside what is in it, about."""
SECTION_HEAD: Final = 10
UINT31: Final = (1 << 31) - 1


class MessageDraft(NamedTuple):
    """A message that is not sent yet; its sequence id is fixed."""

    single: SingleMessage
    deliver_at_ms: int = 0
    txn_id: TxnId | None = None

    @property
    def size(self) -> int:
        """About how many bytes it takes in a batch."""
        single = self.single
        size = OVERHEAD + len(single.value or b"") + len(single.partition_key or "")
        for key, value in single.properties:
            size += 8 + len(key) + len(value)
        return size


class PayloadBuilder:
    """Builds the sections of one producer."""

    def __init__(self, options: ProducerOptions) -> None:
        self._codec = int(options.compression)
        self._chunk_size = options.chunk_size
        self.schema_version = b""

    def _metadata(self, producer: str, draft: MessageDraft, now_ms: int) -> MessageMetadata:
        metadata = MessageMetadata(
            producer_name=producer, sequence_id=draft.single.sequence_id, publish_time=now_ms
        )
        if draft.txn_id is not None:
            metadata.txnid_most_bits, metadata.txnid_least_bits = draft.txn_id
        if self.schema_version:
            metadata.schema_version = self.schema_version
        return metadata

    def single(self, producer: str, draft: MessageDraft, now_ms: int) -> bytes:
        """One message that is an entry of its own."""
        metadata = self._metadata(producer, draft, now_ms)
        if draft.deliver_at_ms:
            metadata.deliver_at_time = draft.deliver_at_ms
        return build_single(draft.single, metadata, codec=self._codec)

    def batch(self, producer: str, drafts: list[MessageDraft], now_ms: int) -> bytes:
        """Several messages of one transaction, or of none, in one entry."""
        metadata = self._metadata(producer, drafts[0], now_ms)
        metadata.highest_sequence_id = drafts[-1].single.sequence_id
        return build_batch([draft.single for draft in drafts], metadata, codec=self._codec)

    def chunks(self, producer: str, draft: MessageDraft, now_ms: int, limit: int) -> list[bytes]:
        """One message in as many entries as it needs, each of at most `limit` bytes."""
        whole = self.single(producer, draft, now_ms)
        limit = min(limit, self._chunk_size or limit)
        if len(whole) <= limit:
            return [whole]
        size_at = SECTION_HEAD + int.from_bytes(whole[6:SECTION_HEAD], "big")
        metadata = MessageMetadata.FromString(whole[SECTION_HEAD:size_at])
        payload = memoryview(whole)[size_at:]
        metadata.uuid = f"{producer}-{draft.single.sequence_id}"
        metadata.total_chunk_msg_size = len(payload)
        metadata.chunk_id = metadata.num_chunks_from_msg = UINT31  # as long as they can get
        room = max(1, limit - SECTION_HEAD - metadata.ByteSize())
        metadata.num_chunks_from_msg = -(-len(payload) // room)
        sections = []
        for number in range(metadata.num_chunks_from_msg):
            metadata.chunk_id = number
            piece = payload[number * room : (number + 1) * room]
            sections.append(build_section(metadata, piece))
        return sections
