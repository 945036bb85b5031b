"""What a get finds in the log: messages from an offset on, and where the next one goes on.

Entries of TubeMQ's own format are picked as they are stored, compiled, without looking at each one
here. Among entries of other protocols each is taken by itself: its messages are converted
(gateway/conversion_cache.py), a window of an entry at a time, since TubeMQ has no batches;
transactions
that are open or aborted are not seen. What is passed over moves the position all the same.

How entries are read, and which are hidden, is in gateway/partition_reader.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from trilogue.entry.conversion.result import SkippedRange, TubeMessage
from trilogue.entry.entry import Format
from trilogue.entry.tubemq.tubemq_blob import PickedMessages, Transfer, java_hash, message_id, pick
from trilogue.entry.walk import read_header
from trilogue.gateway.conversion_cache import ConversionCache
from trilogue.gateway.partition_reader import (
    HIDDEN,
    EntryWalk,
    ExecutorRead,
    NeedsExecutor,
    read_visible,
)
from trilogue.log.partition_log import PartitionLog

DATA_BYTES: Final = 512 << 10  # of messages in one answer; a first one may be larger
MESSAGES: Final = 1_000  # that one get looks at
CHECKSUM_MASK: Final = 0x7FFFFFFF


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


PendingPack: TypeAlias = ExecutorRead[Pack]


class _Room:
    """What fits into one answer."""

    __slots__ = ("count", "messages", "messages_max", "next_offset", "size")

    def __init__(self, offset: int, messages_max: int) -> None:
        self.messages_max = messages_max
        self.messages: list[Transfer] = []
        self.next_offset = offset
        self.size = 0
        self.count = 0

    @property
    def is_full(self) -> bool:
        return self.count >= self.messages_max or self.size >= DATA_BYTES

    def add_message(self, message: Transfer) -> bool:
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
    plog: PartitionLog,
    offset: int,
    filters: Filters | None,
    conversions: ConversionCache,
    messages_max: int = MESSAGES,
) -> Pack | PendingPack:
    """Read what consumers of committed messages see from an offset on; raises OffsetOutOfRange.

    At the end of data nothing is read.
    """

    def build(walk: EntryWalk) -> Pack:
        most = min(messages_max, MESSAGES)
        work = _Work(plog.partition_id, filters, conversions, most, keep=walk.in_memory)
        return work.pick(walk) if walk.only_own else work.gather(walk)

    return read_visible(plog, offset, DATA_BYTES, Format.TUBEMQ, build)


class _Work:
    """How one read is done."""

    __slots__ = ("_conversions", "_filters", "_keep", "_messages_max", "_partition_id")

    def __init__(
        self,
        partition_id: int,
        filters: Filters | None,
        conversions: ConversionCache,
        messages_max: int,
        *,
        keep: bool,
    ) -> None:
        self._partition_id = partition_id
        self._filters = filters
        self._conversions = conversions
        self._messages_max = messages_max
        self._keep = keep  # converted ones: they are in memory, where none changes

    def pick(self, walk: EntryWalk) -> Pack:
        """Take messages of entries that all are TubeMQ's, without walking them here."""
        slices = walk.slices
        view = slices[0] if len(slices) == 1 else memoryview(b"".join(slices))
        if not len(view):
            return Pack([], walk.end, 0)  # only holes
        found = self._picked(view, walk.start, self._messages_max)
        return Pack(found.messages, found.next_offset, found.size)

    def gather(self, walk: EntryWalk) -> Pack:
        """Take messages of entries of any format."""
        room = _Room(walk.start, self._messages_max)
        try:
            for base, end, entry, entry_format in walk:
                has_room = True
                if entry_format == HIDDEN:
                    room.next_offset = end
                    room.count += 1
                elif entry_format == Format.TUBEMQ:
                    has_room = self._take(entry, room, base)
                else:
                    has_room = self._convert(entry, room, end)
                if not has_room or room.is_full:
                    return room.pack(0)
        except NeedsExecutor:
            if not room.messages:
                raise
            return room.pack(0)
        return room.pack(walk.end)

    def _picked(self, view: memoryview, offset: int, count: int) -> PickedMessages:
        if self._filters is None:
            return pick(view, self._partition_id, offset, None, DATA_BYTES, count)
        _, hashes, octets = self._filters
        return pick(view, self._partition_id, offset, hashes, DATA_BYTES, count, octets)

    def _take(self, entry: memoryview, room: _Room, base: int) -> bool:
        """Take a stored message; False when there is no room for it."""
        found = self._picked(entry, base, 1)
        room.count += 1
        if not all(map(room.add_message, found.messages)):
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
                if isinstance(each, SkippedRange):
                    room.next_offset = max(room.next_offset, each.offset + each.span)
                elif each.offset >= start:
                    wanted = filters is None or each.message_type in filters.texts
                    if room.is_full or (wanted and not room.add_message(self._transfer(each))):
                        return False
                    room.next_offset = each.offset + 1
                    room.count += 1
            if room.next_offset <= start:  # it has nothing about what was requested
                room.next_offset = end
        return True

    def _transfer(self, message: TubeMessage) -> Transfer:
        offset, data, flag, _, _ = message
        checksum = crc32(data) & CHECKSUM_MASK
        return Transfer(message_id(self._partition_id, offset), checksum, memoryview(data), flag)
