"""What a get finds in the log: messages from an offset on, and where the next one goes on.

Entries of TubeMQ's own format are picked as they are stored, compiled, without looking at each one
here. Among entries of other protocols each is taken by itself: its messages are converted
(gateway/conversions.py), a window of an entry at a time, since TubeMQ has no batches; transactions
that are open or aborted are not seen. What is passed over moves the position all the same.

Entries in memory are read at once: the data of messages are then views of the tail, not to be kept
longer than a turn. For the executor (`Later.run`) are segments, searches for aborted transactions,
and conversions that are large or have to decompress, which nobody knows the size of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from zlib import crc32

from trilogue.entry.convert_result import Skipped, TubeMessage
from trilogue.entry.entry import CONTROL, TRANSACTIONAL, Format
from trilogue.entry.tubemq_blob import Picked, Transfer, java_hash, message_id, pick
from trilogue.entry.walk import formats_in, read_header
from trilogue.gateway.committed import (
    ATTRIBUTES_AT,
    FORMAT_AT,
    cold_end,
    entries_from,
    hot_end,
    is_aborted,
)
from trilogue.gateway.conversions import (
    CONVERTED_ON_LOOP,
    TUBEMQ_ONLY,
    Conversions,
    weight_of,
)
from trilogue.log.partition_log import Cold, LaterAborted, PartitionLog
from trilogue.log.segment import AbortedTransaction

DATA_BYTES: Final = 512 << 10  # of messages in one answer; a first one may be larger
MESSAGES: Final = 1_000  # that one get looks at
CHECKSUM_MASK: Final = 0x7FFFFFFF

Aborted = list[AbortedTransaction] | LaterAborted


class Filters(NamedTuple):
    """Which types of messages a consumer wants."""

    texts: frozenset[str]
    hashes: frozenset[int]  # first: a number is quickly compared
    octets: frozenset[bytes]  # then: two types may have one hash


class Pack(NamedTuple):
    """Messages, up to where was read, and how many bytes of data they are."""

    messages: list[Transfer]
    next_offset: int
    size: int


class Later(NamedTuple):
    """A read for the executor; `run` may raise LogError, EntryError or OSError."""

    run: Callable[[], Pack]


class _Room:
    """What fits into one answer."""

    __slots__ = ("count", "messages", "next_offset", "size")

    def __init__(self, offset: int) -> None:
        self.messages: list[Transfer] = []
        self.next_offset = offset
        self.size = 0
        self.count = 0

    @property
    def is_full(self) -> bool:
        return self.count >= MESSAGES or self.size >= DATA_BYTES

    def put(self, message: Transfer) -> bool:
        """Take a message, unless it is too much."""
        size = len(message.data)
        if self.messages and self.size + size > DATA_BYTES:
            return False
        self.messages.append(message)
        self.size += size
        return True

    def pack(self, end: int) -> Pack:
        return Pack(self.messages, max(self.next_offset, end), self.size)


def filters_of(texts: Iterable[str]) -> Filters | None:
    """The filters of a consumer; None where it wants everything."""
    wanted = frozenset(texts)
    if not wanted:
        return None
    octets = frozenset(each.encode() for each in wanted)
    return Filters(wanted, frozenset(map(java_hash, wanted)), octets)


def read(
    plog: PartitionLog, offset: int, filters: Filters | None, conversions: Conversions
) -> Pack | Later:
    """Read what committed readers may see from an offset on, below the stable end.

    Raises OffsetOutOfRange. Only where there is something: at the end of data nothing is read.
    """
    stable_end = plog.stable_end
    found = plog.read(offset, DATA_BYTES, until=stable_end)
    work = _Work(plog.partition_id, filters, conversions, keep=not isinstance(found, Cold))
    if isinstance(found, Cold):
        aborted = plog.aborted(offset, stable_end)  # asked for here: the log lives on the loop
        return Later(lambda: _cold(work, found, offset, stable_end, aborted))
    end = hot_end(found, offset, stable_end)
    slices = [memoryview(each) for each in found.slices]
    if plog.tail_formats == TUBEMQ_ONLY:
        return work.pick(_joined(slices), offset, end)
    return work.gather(slices, offset, end, lambda: plog.aborted(offset, end), on_loop=True)


def _joined(slices: list[memoryview]) -> memoryview:
    return slices[0] if len(slices) == 1 else memoryview(b"".join(slices))


def _cold(work: _Work, cold: Cold, offset: int, stable_end: int, aborted: Aborted) -> Pack:
    """In the executor."""
    view = cold.run()
    end = cold_end(cold, view, offset, stable_end)
    if len(view) and formats_in(view) == TUBEMQ_ONLY:
        return work.pick(view, offset, end)
    found = work.gather([view], offset, end, lambda: aborted, on_loop=False)
    assert isinstance(found, Pack), "everything can be done here"
    return found


class _NotOnLoop(Exception):
    def __init__(self, aborted: Aborted) -> None:
        super().__init__()
        self.aborted = aborted


class _Hidden:
    """Which entries nobody may see: markers, and those of transactions that were aborted."""

    __slots__ = ("_ask", "_end", "_on_loop", "_passed")

    def __init__(self, ask: Callable[[], Aborted], end: int, *, on_loop: bool) -> None:
        self._ask = ask
        self._end = end
        self._on_loop = on_loop
        self._passed: list[AbortedTransaction] | None = None

    def has(self, attributes: int, base: int, producer_id: int) -> bool:
        """Whether an entry is one of them; _NotOnLoop where that takes a look into segments."""
        if not attributes & (CONTROL | TRANSACTIONAL):
            return False
        if self._passed is None:
            found = self._ask()
            if isinstance(found, LaterAborted):
                if self._on_loop:
                    raise _NotOnLoop(found)
                found = found.run(self._end)
            self._passed = found
        return bool(attributes & CONTROL) or is_aborted(attributes, base, producer_id, self._passed)


class _Work:
    """How one read is done."""

    __slots__ = ("_conversions", "_filters", "_keep", "_partition_id")

    def __init__(
        self,
        partition_id: int,
        filters: Filters | None,
        conversions: Conversions,
        *,
        keep: bool,
    ) -> None:
        self._partition_id = partition_id
        self._filters = filters
        self._conversions = conversions
        self._keep = keep  # converted ones: they are in memory, where none changes

    def pick(self, view: memoryview, offset: int, end: int) -> Pack:
        """Take messages of entries that all are TubeMQ's."""
        if not len(view):
            return Pack([], end, 0)  # only holes
        found = self._picked(view, offset, MESSAGES)
        return Pack(found.messages, found.next_offset, found.size)

    def gather(
        self,
        slices: list[memoryview],
        start: int,
        end: int,
        aborted: Callable[[], Aborted],
        *,
        on_loop: bool,
    ) -> Pack | Later:
        """Take messages of entries of any format; on the loop as far as that is quick."""
        room = _Room(start)
        hidden = _Hidden(aborted, end, on_loop=on_loop)
        weight = 0
        try:
            for at, length, base, delta, producer_id, view in entries_from(slices, start):
                entry = view[at : at + length]
                has_room = True
                if hidden.has(view[at + ATTRIBUTES_AT], base, producer_id):
                    room.next_offset = base + delta + 1
                    room.count += 1
                elif view[at + FORMAT_AT] & 3 == Format.TUBEMQ:
                    has_room = self._take(entry, room, base)
                elif on_loop and (weight := weight + weight_of(entry)) > CONVERTED_ON_LOOP:
                    raise _NotOnLoop(aborted())
                else:
                    has_room = self._convert(entry, room, base + delta + 1)
                if not has_room or room.is_full:
                    return room.pack(0)
        except _NotOnLoop as work:
            if room.messages:  # these first
                return room.pack(0)
            return self._all_later(slices, start, end, work.aborted)
        return room.pack(end)

    def _picked(self, view: memoryview, offset: int, count: int) -> Picked:
        if self._filters is None:
            return pick(view, self._partition_id, offset, None, DATA_BYTES, count)
        _, hashes, octets = self._filters
        return pick(view, self._partition_id, offset, hashes, DATA_BYTES, count, octets)

    def _take(self, entry: memoryview, room: _Room, base: int) -> bool:
        """Take a stored message; False when there is no room for it."""
        found = self._picked(entry, base, 1)
        room.count += 1
        if not all(map(room.put, found.messages)):
            return False
        room.next_offset = found.next_offset
        return True

    def _convert(self, entry: memoryview, room: _Room, end: int) -> bool:
        """Take converted messages, as many as there is room for; False when it is full."""
        header = read_header(entry)
        filters = self._filters
        while room.next_offset < end:
            start = max(room.next_offset, header.base_offset)
            window = self._conversions.for_tubemq(
                self._partition_id, entry, header, start, keep=self._keep
            )
            for each in window:
                if isinstance(each, Skipped):
                    room.next_offset = max(room.next_offset, each.offset + each.span)
                elif each.offset >= start:
                    wanted = filters is None or each.message_type in filters.texts
                    if room.is_full or (wanted and not room.put(self._transfer(each))):
                        return False
                    room.next_offset = each.offset + 1
                    room.count += 1
            if room.next_offset <= start:  # it says nothing of what was asked for
                room.next_offset = end
        return True

    def _transfer(self, message: TubeMessage) -> Transfer:
        offset, data, flag, _, _ = message
        checksum = crc32(data) & CHECKSUM_MASK
        return Transfer(message_id(self._partition_id, offset), checksum, memoryview(data), flag)

    def _all_later(self, slices: list[memoryview], start: int, end: int, aborted: Aborted) -> Later:
        def run() -> Pack:
            found = self.gather(slices, start, end, lambda: aborted, on_loop=False)
            assert isinstance(found, Pack), "everything can be done here"
            return found

        return Later(run)
