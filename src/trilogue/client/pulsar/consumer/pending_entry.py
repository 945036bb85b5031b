"""Entries that are decoded when the application takes their messages, some at a time.

A client inside of a server has an `EntryMemory`: it counts the bytes of entries from their arrival
until the last message is taken, and lets an entry wait before it is decompressed; of a large one it
counts also what the application makes of its largest message, until that is done. Between steps of
long work the loop serves others.

    on_message -> PendingEntry -> decompressed -> every message checked -> 50 messages at a time
                  counted         reserved        in steps
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from trilogue.client.pulsar.consumer.ack_tracker import EntryPosition, has_bit, words_to_mask
from trilogue.client.pulsar.entry_memory import EntryMemory
from trilogue.client.pulsar.errors import BadMessage
from trilogue.client.pulsar.message import MessageOwner
from trilogue.client.pulsar.section import (
    BATCH,
    MAX_MESSAGES,
    Section,
    decompress_payload,
    open_batch,
    read_next_singles,
    read_single,
)
from trilogue.entry.compression import Buffer
from trilogue.entry.pulsar.compression import PulsarCodec
from trilogue.wire.pulsar.message_types import Delivery, Metadata, SingleMessage

DECODED_AT_ONCE: Final = 50  # messages, or as many as have so many bytes
DECODED_BYTES: Final = 64 << 10
CHECKED_AT_ONCE: Final = 1_000  # messages, in 1 ms
LARGE_BYTES: Final = 256 << 10  # of a payload: decompressed in a thread, its copies are counted


class ReceivedEntry(NamedTuple):
    """The properties that all messages of an entry share."""

    place: EntryPosition
    size: int
    """How many messages the batch has; 0 is no batch."""
    metadata: Metadata
    redelivery_count: int
    first_chunk: EntryPosition | None


class EntryOwner(MessageOwner, Protocol):
    """The consumer of the topic of an entry."""

    def find_unacked(self, place: EntryPosition, size: int, broker: int, absent: int) -> int:
        """Return the messages of a batch that are not acknowledged, as bits."""

    def deliver(self, entry: ReceivedEntry, found: Sequence[SingleMessage], permits: int) -> None:
        """Put messages of an entry, which cost so many permits, into the receive queue."""

    def refuse_entry(self, entry: PendingEntry, problem: BadMessage) -> None:
        """Acknowledge an entry that cannot be read."""


class PendingEntry:
    """An entry whose messages are not all decoded yet."""

    def __init__(
        self,
        owner: EntryOwner,
        entry: ReceivedEntry,
        delivery: Delivery,
        section: Section,
        limit: int,
    ) -> None:
        self.owner = owner
        self.entry = entry
        self.section = section
        self.size_bytes = len(section.payload)
        self.is_dropped = False
        self._limit = limit
        if not 0 <= entry.size <= MAX_MESSAGES:
            raise BadMessage(BATCH, f"a batch of {entry.size} messages")
        self._every = (1 << entry.size) - 1
        words = delivery.ack_set
        self._broker_left = words_to_mask(words) & self._every if words else self._every
        self.permits = self._broker_left.bit_count() if entry.size else 1
        """What the broker has counted for the messages that are not delivered."""
        self._parts: Iterator[Sequence[SingleMessage]] | None = None
        self._left_count = 1
        self._largest = 0  # of its messages, in bytes

    @property
    def is_open(self) -> bool:
        """Whether its payload is decompressed."""
        return self._parts is not None

    @property
    def is_large(self) -> bool:
        """Whether what the application makes of its messages is counted, too."""
        return max(len(self.section.payload), self._uncompressed_bytes) > LARGE_BYTES

    @property
    def _uncompressed_bytes(self) -> int:
        metadata = self.entry.metadata
        is_plain = metadata.compression == PulsarCodec.NONE or metadata.has_encryption
        return 0 if is_plain else min(metadata.uncompressed_size, self._limit)

    def work_bytes(self, copies: int) -> int:
        """How many bytes are taken at most besides those that came, with copies of a message."""
        whole = self._uncompressed_bytes
        return whole + copies * (whole or len(self.section.payload)) * self.is_large

    async def decode_next(self, memory: EntryMemory) -> bool:
        """Deliver the next messages; return whether there are more. Raises BadMessage."""
        if self._parts is None:
            payload = await self._decompress()
            if self.entry.size:
                self._parts = await self._check(payload, memory)
            else:
                single = read_single(self.entry.metadata, self.section.properties, payload)
                self._parts = iter([[single]])
                self._largest = len(payload)
            self.size_bytes = len(self.section.payload)
            if self.is_large:
                self.size_bytes += self._uncompressed_bytes + memory.copies * self._largest
        if self.is_dropped:
            return False
        found = next(self._parts, ())
        self._left_count -= len(found)
        # Those that are acknowledged already cost permits, too.
        permits = self.permits - self._left_count
        self.permits = self._left_count
        self.owner.deliver(self.entry, found, permits)
        return self._left_count > 0

    async def _decompress(self) -> Buffer:
        metadata, payload = self.entry.metadata, self.section.payload
        if self._uncompressed_bytes <= LARGE_BYTES:
            return decompress_payload(metadata, payload, self._limit)
        return await asyncio.to_thread(decompress_payload, metadata, payload, self._limit)

    async def _check(
        self, payload: Buffer, memory: EntryMemory
    ) -> Iterator[Sequence[SingleMessage]]:
        """Read all messages of a batch once; return those that are to be delivered, in parts."""
        place, size, metadata, *_ = self.entry
        reader = open_batch(metadata, payload)
        present = bytearray(size // 8 + 1)
        count, is_large = 0, self.is_large
        while found := read_next_singles(reader, CHECKED_AT_ONCE):
            for one in found:
                present[one.batch_index >> 3] |= 1 << (one.batch_index & 7)
            if is_large:
                largest = max(len(one.value or b"") for one in found)
                self._largest = max(self._largest, largest)
            count += len(found)
            if len(found) == CHECKED_AT_ONCE:
                await memory.next_step()
        absent = self._every & ~int.from_bytes(present, "little") if count != size else 0
        if self.is_dropped:
            return iter(())
        left = self.owner.find_unacked(place, size, self._broker_left, absent)
        self._left_count = left.bit_count()
        return _read_parts(metadata, payload, None if left == self._every else left)


def _read_parts(
    metadata: Metadata, payload: Buffer, left: int | None
) -> Iterator[Sequence[SingleMessage]]:
    """Yield the messages of a batch in parts: all of them, or those of a set of bits."""
    size = metadata.num_messages
    bits = b"" if left is None else left.to_bytes(size // 8 + 1, "little")
    reader = open_batch(metadata, payload)
    at_once = max(1, min(DECODED_AT_ONCE, DECODED_BYTES * size // len(payload)))
    while found := read_next_singles(reader, at_once):
        if left is not None:
            found = [one for one in found if has_bit(bits, one.batch_index)]
        if found:
            yield found
