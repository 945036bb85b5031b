"""Acknowledgements that are not sent yet, and the unacknowledged messages of batches.

A batch is one entry to the broker: the entry is acknowledged when all its messages are, or, with
batch index acks (PIP-54), at every change, by a set of bits that are 1 for messages that are *not*
acknowledged yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from trilogue.client.errors import ClientError
from trilogue.client.pulsar.message import UINT64, MessageId
from trilogue.wire.pulsar.pulsar_pb2 import MessageIdData

MAX_PARTIAL_BATCHES: Final = 100_000
"""Batches that are kept track of; beyond it the oldest is forgotten, and comes whole again."""
EntryPosition = tuple[int, int]
AckedEntries = dict[EntryPosition, tuple[int, int]]
"""Entries, with the messages of a batch that stay unacknowledged, as bits, and its size."""


def mask_to_words(mask: int) -> list[int]:
    """A set of bits as 64-bit words, the lowest first, none of zeros at the end (signed)."""
    words = []
    while mask:
        word = mask & UINT64
        words.append(word - (1 << 64) if word >> 63 else word)
        mask >>= 64
    return words


def words_to_mask(words: tuple[int, ...]) -> int:
    """The set of bits that words (as they stand on the wire) make up."""
    mask = 0
    for at, word in enumerate(words):
        mask |= (word & UINT64) << (64 * at)
    return mask


def bits_to_mask(indexes: Iterable[int], size: int) -> int:
    """The set of bits with these indexes, all below `size`."""
    bits = bytearray(size // 8 + 1)
    for index in indexes:
        bits[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(bits, "little")


def has_bit(bits: bytes, index: int) -> bool:
    """Whether a set of bits has this one; the set as bytes, the lowest first."""
    return bool(bits[index >> 3] >> (index & 7) & 1)


class AckTracker:
    """The acknowledgements of one consumer; `take_single` and `take_through` return new ones.

    Of a batch only what was acknowledged here is sent as such: messages that the broker does not
    send may be acknowledged, but also be in a transaction that is open, and come again.
    """

    def __init__(self, *, batch_index: bool) -> None:
        self._batch_index = batch_index
        self._left: dict[EntryPosition, int] = {}
        self._acked: dict[EntryPosition, int] = {}
        self._sizes: dict[EntryPosition, int] = {}
        self._chunks: dict[EntryPosition, tuple[EntryPosition, ...]] = {}
        self._single: AckedEntries = {}
        self._through: tuple[EntryPosition, int, int] | None = None

    @property
    def has_news(self) -> bool:
        """Whether the broker does not know everything."""
        return bool(self._single) or self._through is not None

    def clear(self) -> None:
        """Forget everything: the position was moved."""
        for one in (self._left, self._acked, self._sizes, self._chunks, self._single):
            one.clear()
        self._through = None

    def on_batch_received(
        self, place: EntryPosition, size: int, broker_left: int, absent: int = 0
    ) -> int:
        """A batch came (again): the messages of it that are not acknowledged, as bits.

        `absent` are those that were compacted out. Where none is left the entry is acknowledged.
        """
        self._sizes[place] = size
        self._acked[place] = self._acked.get(place, 0) | absent
        left = self._left[place] = broker_left & ~self._acked[place]
        if not left:
            self._finish(place)
        elif len(self._left) > MAX_PARTIAL_BATCHES:
            self._forget(next(iter(self._left)))
        return left

    def on_chunks_joined(self, place: EntryPosition, chunks: tuple[EntryPosition, ...]) -> None:
        """A message came in chunks: all are acknowledged with it."""
        self._chunks[place] = chunks

    def entries_of(self, id: MessageId) -> tuple[EntryPosition, ...]:  # noqa: A002 - as everywhere
        """The entries that a message lies in."""
        place = id.ledger_id, id.entry_id
        return self._chunks.get(place, (place,))

    def add(self, id: MessageId) -> None:  # noqa: A002 - as everywhere
        """A message is acknowledged."""
        place = id.ledger_id, id.entry_id
        if id.batch_index < 0:
            for one in self._chunks.pop(place, (place,)):
                self._single[one] = 0, 0
        elif not self._add_bits(id, _acked_bits(id, through=False)):
            self._finish(place)
        elif self._batch_index:
            self._single[place] = self._unacked(place)

    def add_through(self, id: MessageId) -> None:  # noqa: A002 - as everywhere
        """A message and all before it are acknowledged."""
        place = id.ledger_id, id.entry_id
        unacked = size = 0
        self._forget_before(place)
        if id.batch_index >= 0:
            left = self._add_bits(id, _acked_bits(id, through=True))
            unacked, size = self._unacked(place)
            if left and not self._batch_index:
                # The whole entry before it, and this one when it is done.
                place, unacked = (place[0], place[1] - 1), 0
            elif not left:
                self._forget(place)
        else:
            self._forget(place)
        if self._through is None or (self._through[0], -self._through[1]) <= (place, -unacked):
            self._through = place, unacked, size

    def find_entries(self, id: MessageId, *, through: bool) -> AckedEntries:  # noqa: A002
        """The entries of an ack of one message alone, or (`through`) of all before it, too."""
        place = id.ledger_id, id.entry_id
        if id.batch_index < 0:
            return dict.fromkeys((place,) if through else self.entries_of(id), (0, 0))
        size = self._batch_size(id)
        return {place: (((1 << size) - 1) & ~_acked_bits(id, through=through), size)}

    def add_committed(self, id: MessageId, *, through: bool) -> None:  # noqa: A002 - as everywhere
        """The ack of a message in a transaction took effect: the broker has that one."""
        place = id.ledger_id, id.entry_id
        if through:
            self._forget_before(place)
        if id.batch_index < 0:
            self._forget(place)
        elif place in self._left and not self._add_bits(id, _acked_bits(id, through=through)):
            if self._batch_index:
                self._forget(place)
            else:
                self._finish(place)  # with the acks outside of transactions

    def _add_bits(self, id: MessageId, bits: int) -> int:  # noqa: A002 - as everywhere
        """Take messages of a batch for acknowledged; returns those that are left, as bits."""
        place = id.ledger_id, id.entry_id
        if place not in self._left:
            self._sizes[place] = size = self._batch_size(id)
            self._left[place] = (1 << size) - 1
        self._acked[place] = self._acked.get(place, 0) | bits
        self._left[place] &= ~bits
        return self._left[place]

    def _batch_size(self, id: MessageId) -> int:  # noqa: A002 - as everywhere
        place = id.ledger_id, id.entry_id
        size = self._sizes.get(place, id.batch_size)
        if size <= id.batch_index:
            raise ClientError(f"of the batch at {place} nothing is known, not even its size")
        return size

    def _unacked(self, place: EntryPosition) -> tuple[int, int]:
        """The messages of a batch that are not acknowledged here, as bits, and its size."""
        size = self._sizes[place]
        return ((1 << size) - 1) & ~self._acked[place], size

    def _finish(self, place: EntryPosition) -> None:
        """Acknowledge a batch of which nothing is left."""
        self._single[place] = self._unacked(place)
        self._forget(place)

    def _forget(self, place: EntryPosition) -> None:
        for known in (self._left, self._acked, self._sizes, self._chunks):
            known.pop(place, None)

    def _forget_before(self, place: EntryPosition) -> None:
        for known in (self._left, self._chunks):
            while known and next(iter(known)) < place:
                self._forget(next(iter(known)))

    def take_through(self) -> MessageIdData | None:
        """What to acknowledge cumulatively now."""
        through, self._through = self._through, None
        return None if through is None else _data(*through)

    def take_single(self, most: int) -> Iterator[list[MessageIdData]]:
        """What to acknowledge one by one now, in portions."""
        single, self._single = self._single, {}
        return encode_entries(single, most)


def encode_entries(entries: AckedEntries, most: int) -> Iterator[list[MessageIdData]]:
    """The ids of entries as acks have them, in portions."""
    rows = list(entries.items())
    for at in range(0, len(rows), most):
        yield [_data(place, *unacked) for place, unacked in rows[at : at + most]]


def _acked_bits(id: MessageId, *, through: bool) -> int:  # noqa: A002 - as everywhere
    """Which messages of its batch are acknowledged with this one, as bits."""
    return (2 << id.batch_index) - 1 if through else 1 << id.batch_index


def _data(place: EntryPosition, unacked: int, size: int) -> MessageIdData:
    data = MessageIdData(ledgerId=place[0] & UINT64, entryId=place[1] & UINT64)
    if unacked:
        data.ack_set.extend(mask_to_words(unacked))
        data.batch_size = size
    return data
