"""Acknowledgements that are not sent yet, and the unacknowledged messages of batches.

A batch is one entry to the broker: the entry is acknowledged when all its messages are, or, with
batch index acks (PIP-54), at every change, by a set of bits that are 1 for messages that are *not*
acknowledged yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trilogue.client.errors import ClientError
from trilogue.client.pulsar.message import UINT64, MessageId
from trilogue.wire.pulsar.pulsar_pb2 import MessageIdData

MAX_PARTIAL_BATCHES: Final = 100_000
"""Batches that are kept track of; beyond it the oldest is forgotten, and comes whole again."""
EntryPosition = tuple[int, int]


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


class AckTracker:
    """The acknowledgements of one consumer; `take_single` and `take_through` return new ones."""

    def __init__(self, *, batch_index: bool) -> None:
        self._batch_index = batch_index
        self._left: dict[EntryPosition, int] = {}
        self._sizes: dict[EntryPosition, int] = {}
        self._chunks: dict[EntryPosition, tuple[EntryPosition, ...]] = {}
        self._single: dict[EntryPosition, None] = {}
        self._through: tuple[EntryPosition, int, int] | None = None

    @property
    def has_news(self) -> bool:
        """Whether the broker does not know everything."""
        return bool(self._single) or self._through is not None

    def clear(self) -> None:
        """Forget everything: the position was moved."""
        for one in (self._left, self._sizes, self._chunks, self._single):
            one.clear()
        self._through = None

    def on_batch_received(self, place: EntryPosition, size: int, broker_left: int) -> int:
        """A batch came (again): the messages of it that are not acknowledged, as bits."""
        left = self._left.get(place, broker_left) & broker_left
        if left:
            self._left[place] = left
            self._sizes[place] = size
        if len(self._left) > MAX_PARTIAL_BATCHES:
            oldest = next(iter(self._left))
            del self._left[oldest], self._sizes[oldest]
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
                self._single[one] = None
            return
        left = self._known(id) & ~(1 << id.batch_index)
        if not left:
            self._forget(place)
            self._single[place] = None
            return
        self._left[place] = left
        if self._batch_index:
            self._single[place] = None

    def add_entry(self, place: EntryPosition) -> None:
        """A whole entry is acknowledged, whatever is in it."""
        self._forget(place)
        self._single[place] = None

    def add_through(self, id: MessageId) -> None:  # noqa: A002 - as everywhere
        """A message and all before it are acknowledged."""
        place = id.ledger_id, id.entry_id
        left = size = 0
        if id.batch_index >= 0:
            left = self._known(id) >> (id.batch_index + 1) << (id.batch_index + 1)
            size = self._sizes.get(place, id.batch_size)
        for known in (self._left, self._chunks):
            while known and next(iter(known)) < place:
                gone = next(iter(known))
                del known[gone]
                self._sizes.pop(gone, None)
        if left:
            self._left[place] = left
            if not self._batch_index:  # the whole entry before it, and this one when it is done
                place, left = (place[0], place[1] - 1), 0
        else:
            self._forget(place)
        if self._through is None or (self._through[0], -self._through[1]) <= (place, -left):
            self._through = place, left, size

    def _known(self, id: MessageId) -> int:  # noqa: A002 - as everywhere
        place = id.ledger_id, id.entry_id
        left = self._left.get(place)
        if left is not None:
            return left
        if id.batch_size <= id.batch_index:
            raise ClientError(f"of the batch at {place} nothing is known, not even its size")
        self._sizes[place] = id.batch_size
        return (1 << id.batch_size) - 1

    def _forget(self, place: EntryPosition) -> None:
        self._left.pop(place, None)
        self._sizes.pop(place, None)
        self._chunks.pop(place, None)

    def take_through(self) -> MessageIdData | None:
        """What to acknowledge cumulatively now."""
        through, self._through = self._through, None
        return None if through is None else _data(*through)

    def take_single(self, most: int) -> Iterator[list[MessageIdData]]:
        """What to acknowledge one by one now, in portions."""
        single, self._single = list(self._single), {}
        for at in range(0, len(single), most):
            yield [
                _data(place, self._left.get(place, 0), self._sizes.get(place, 0))
                for place in single[at : at + most]
            ]


def _data(place: EntryPosition, left: int, size: int) -> MessageIdData:
    data = MessageIdData(ledgerId=place[0] & UINT64, entryId=place[1] & UINT64)
    if left:
        data.ack_set.extend(mask_to_words(left))
        data.batch_size = size
    return data
