"""Messages of any format, read from an offset on, that match a search; bounded in all directions.

A scan reads pieces of the log, each in one step or in the executor, until it has a page of
messages or has looked at so many. Its result names where a next scan goes on. Messages are the
neutral ones of entry/message.py, so entries of all protocols look alike.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from trilogue.entry.conversion.convert import read_messages
from trilogue.entry.entry import EntryError
from trilogue.entry.message import Message
from trilogue.entry.walk import read_header
from trilogue.gateway.partition_reader import (
    HIDDEN,
    EntryWalk,
    ExecutorRead,
    read_visible,
)
from trilogue.gateway.segments.cold_reads import ColdReads
from trilogue.gateway.steps import next_step
from trilogue.log.partition_log import PartitionLog

READ_BYTES: Final = 256 << 10
MESSAGES_SCANNED: Final = 10_000  # by one request
BYTES_SCANNED: Final = 8 << 20
ENTRIES_SCANNED: Final = 10_000
VALUE_KEPT: Final = 64 << 10  # bytes of a value that are decoded and shown
NO_FORMAT: Final = -1  # entries of every format count as work, also in memory
HEADERS_KEPT: Final = 50


class Search(msgspec.Struct, frozen=True):
    """What a message must have: this key, this text in it; both empty: anything."""

    key: bytes = b""
    text: bytes = b""

    @property
    def is_open(self) -> bool:
        """Whether it matches every message."""
        return not self.key and not self.text

    def matches(self, message: Message) -> bool:
        """Whether a message has what is searched."""
        if self.key and message.key != self.key:
            return False
        text = self.text
        if not text:
            return True
        return (
            (message.value is not None and text in message.value)
            or (message.key is not None and text in message.key)
            or any(
                text in name.encode() or (value is not None and text in value)
                for name, value in message.headers
            )
        )


class FoundMessage(NamedTuple):
    """A message and where it is; its value is cut to `VALUE_KEPT` bytes."""

    partition: int
    offset: int
    format: str
    message: Message
    value_size: int  # -1: there is none


class UnreadableEntry(NamedTuple):
    """An entry whose messages cannot be shown: encrypted, a chunk, or damaged."""

    partition: int
    offset: int
    messages: int
    reason: str


class Scan:
    """One scan of one partition after another; `found` grows until there are enough."""

    def __init__(self, search: Search, rows_max: int) -> None:
        self.search = search
        self.rows_max = rows_max
        self.found: list[FoundMessage] = []
        self.unreadable: list[UnreadableEntry] = []
        self.messages = self.entries = self.size = 0

    @property
    def is_full(self) -> bool:
        """Whether it has a page of messages."""
        return len(self.found) + len(self.unreadable) >= self.rows_max

    @property
    def is_over(self) -> bool:
        """Whether it has to end, with a page or at its bounds."""
        return (
            self.is_full
            or self.messages >= MESSAGES_SCANNED
            or self.entries >= ENTRIES_SCANNED
            or self.size >= BYTES_SCANNED
        )

    async def read_partition(
        self, number: int, plog: PartitionLog, offset: int, end: int, cold_reads: ColdReads
    ) -> int:
        """Read one partition up to an offset; return where the next scan goes on."""
        while offset < end and not self.is_over:
            piece = _Piece(self, number, end)
            read = read_visible(plog, offset, READ_BYTES, NO_FORMAT, piece.build)
            if isinstance(read, ExecutorRead):
                result = await cold_reads.run(read.size_hint, read.run, connection=self)
            else:
                result = read
            offset = max(result, offset + 1)
            self.found += piece.found
            self.unreadable += piece.unreadable
            self.messages += piece.messages
            self.entries += piece.entries
            self.size += piece.size
            await next_step()
        return offset


class _Piece:
    """What one read gives; it may be built twice, the second time in the executor."""

    def __init__(self, scan: Scan, partition: int, end: int) -> None:
        self._scan = scan
        self._partition = partition
        self._end = end
        self._clear()

    def _clear(self) -> None:
        self.found: list[FoundMessage] = []
        self.unreadable: list[UnreadableEntry] = []
        self.messages = self.entries = self.size = 0

    def build(self, walk: EntryWalk) -> int:
        """Read the entries of a walk; return the offset behind what was looked at."""
        self._clear()
        for base, end, entry, entry_format in walk:
            if base >= self._end:
                return base
            self.entries += 1
            self.size += len(entry)
            if entry_format == HIDDEN:
                continue
            stopped = self._read_entry(entry, walk.start, end)
            if stopped is not None:
                return stopped
        return walk.end

    def _read_entry(self, entry: memoryview, start: int, end: int) -> int | None:
        """Read the messages of an entry; return where to go on if that is inside it."""
        header = read_header(entry)
        before = len(self.found)
        try:
            placed, _ = read_messages(entry, header, start)
            for offset, message in placed:
                if offset < start:
                    continue
                if offset >= self._end or self._is_full():
                    return offset
                self.messages += 1
                self.size += len(message.value or b"")
                if self._scan.search.matches(message):
                    name = header.format.name.lower()
                    self.found.append(_cut(self._partition, offset, name, message))
        except EntryError as error:
            if self._scan.search.is_open and len(self.found) == before:
                self.unreadable.append(
                    UnreadableEntry(
                        self._partition, header.base_offset, header.record_count, str(error)
                    )
                )
        return end if self._is_full() else None

    def _is_full(self) -> bool:
        scan = self._scan
        rows = len(scan.found) + len(scan.unreadable) + len(self.found) + len(self.unreadable)
        return (
            rows >= scan.rows_max
            or scan.messages + self.messages >= MESSAGES_SCANNED
            or scan.size + self.size >= BYTES_SCANNED
        )


def _cut(partition: int, offset: int, name: str, message: Message) -> FoundMessage:
    value = message.value
    size = -1 if value is None else len(value)
    kept = message._replace(
        value=None if value is None else bytes(value[:VALUE_KEPT]),
        headers=message.headers[:HEADERS_KEPT],
    )
    return FoundMessage(partition, offset, name, kept, size)
