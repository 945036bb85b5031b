# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The way of an entry through the log, compiled: into the tail, into the window, to the followers.

Each class here is the hot half of one that stands elsewhere and derives from it: `Window`,
`Journal`, `Tail` and `PartitionLog`. They run once for every entry that is appended and once for
every partition in a commit, so their fields are plain C numbers and they call each other without
Python between (docs/decisions/0058). Everything else about them is in those files. Cython reads
this file together with hot.pxd, which only adds types; uncompiled it is plain Python.

    PartitionLog.append ──► Tail.append ──► Journal.add_entry ──► Window
    Window.close ──► PartitionLog.mark     Window.advance ──► PartitionLog.advance, wake
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import cython

from trilogue.entry.checksum import WORTH_COMBINING
from trilogue.entry.entry import CHECKED_FROM, FORMAT_SHIFT, TRANSACTIONAL, EntryHeader
from trilogue.log.errors import FrameTooLarge, LogError, StorageFailed
from trilogue.log.frame import MAX_ENTRY, PREFIX, entry_checksum

if not cython.compiled:  # hot.pxd takes the compiled twins
    from trilogue.log.hot_memory import put, put_prefix, put_stamp

if TYPE_CHECKING:
    from trilogue.log.transactions import Transactions

log = logging.getLogger(__name__)

Mark: TypeAlias = "tuple[int, int]"
Waiter: TypeAlias = "Callable[[StorageFailed | None], None]"
Chunk: TypeAlias = "bytearray | memoryview"

NOBODY: Final[dict[object, Callable[[], None]]] = {}  # never added to: one for all partitions

_PREFIX_SIZE = PREFIX.size
_MAX_ENTRY = MAX_ENTRY
_WORTH_COMBINING = WORTH_COMBINING
_FORMAT_SHIFT = FORMAT_SHIFT
_TRANSACTIONAL = TRANSACTIONAL
# A header's fields by their place: it is a tuple, and their names are looked up anew each time.
_ATTRIBUTES = EntryHeader._fields.index("attributes")
_LAST_OFFSET_DELTA = EntryHeader._fields.index("last_offset_delta")
_MAX_TIMESTAMP = EntryHeader._fields.index("max_timestamp")


class Follower(Protocol):
    """Someone with entries in a window, to be told how far they are durable."""

    def mark(self) -> Mark:
        """Say where the entries added so far end; the window takes no more of them."""

    def advance(self, mark: Mark) -> None:
        """Everything up to this mark is durable."""

    def wake(self) -> None:
        """Tell those who wait, now that all of the window's marks are set."""


class HotWindow:
    """What fills. `used` and `limit` are moved by the journal."""

    __slots__ = (
        "entry_count",
        "facts",
        "followers",
        "known",
        "limit",
        "marks",
        "used",
        "view",
        "waiters",
    )

    view: memoryview
    used: int  # where the next entry goes
    limit: int  # where entries have to end, so that the facts fit behind
    entry_count: int
    facts: list[tuple[int, bytes]]
    known: list[tuple[int, int, int]]  # parts whose checksum is known: start, end, it
    followers: list[Follower]
    marks: list[tuple[Follower, Mark]]
    waiters: list[Waiter]

    def close(self) -> None:
        """Take no more: from now on its followers add to another window."""
        marks = []
        for follower in self.followers:
            marks.append((follower, follower.mark()))  # noqa: PERF401 -- compiled it is as fast
        self.marks = marks

    def advance(self) -> None:
        """Tell the followers, then their readers, that all of this is durable."""
        for follower, mark in self.marks:
            follower.advance(mark)
        for follower, _ in self.marks:
            follower.wake()


class HotJournal:
    """What entries are added to."""

    __slots__ = ("_armed", "_failure", "_filling", "durable_ms", "refusal")

    durable_ms: int  # append time of the newest durable frame of this life
    refusal: LogError | None
    _filling: HotWindow
    _armed: bool  # whether the window that fills goes as soon as the disk is free
    _failure: StorageFailed | None

    def add_entry(
        self,
        partition_id: int,
        owner_epoch: int,
        entry: memoryview,
        patient: bool = False,
    ) -> HotWindow:
        """Copy an entry into the window that fills and return that window.

        It goes to disk as soon as that is free, a `patient` one within `interval_s`. This is the
        hot path: no objects, and the room is checked once.
        """
        if self.refusal is not None:
            self.refuse()
        size = _PREFIX_SIZE + len(entry)
        window = self._filling
        start = window.used
        if start + size > window.limit:
            window = self._turn(size, _MAX_ENTRY + _PREFIX_SIZE)
            start = window.used
        end = start + size
        put_prefix(window.view, start, partition_id, owner_epoch)
        put(window.view, start + _PREFIX_SIZE, entry)
        window.used = end
        window.entry_count += 1
        if size > _WORTH_COMBINING:
            checked_from = start + _PREFIX_SIZE + CHECKED_FROM
            window.known.append((checked_from, end, entry_checksum(entry, 0)))
        if not self._armed:
            self._arm_for(patient)
        return window

    def on_commit(self, callback: Waiter) -> None:
        """Call once everything added so far is durable, with None, or with why it never will be.

        Always in a later turn of the loop, on the loop.
        """
        window = self._filling
        if self._failure is None and self._armed and (window.entry_count or window.facts):
            window.waiters.append(callback)
        else:
            self._wait_for(callback)

    def refuse(self) -> None:
        """Raise why nothing can be appended now, unless the reason has gone by itself."""
        raise NotImplementedError

    def _turn(self, size: int, most: int) -> HotWindow:
        """Put a new window in the place of one that has no room for `size` more bytes."""
        raise NotImplementedError

    def _arm_for(self, patient: bool) -> None:
        raise NotImplementedError

    def _wait_for(self, callback: Waiter) -> None:
        raise NotImplementedError


class HotTail:
    """The chunk that fills."""

    __slots__ = ("_chunk", "_fill", "_latest", "_next_mark", "_room", "end", "start")

    start: int  # position of the first byte kept
    end: int  # position of the next byte
    _chunk: Chunk
    _fill: int
    _room: int
    _latest: int  # the maximum timestamp since the last mark
    _next_mark: int

    def append(
        self, entry: memoryview, size: int, base_offset: int, owner_epoch: int, max_timestamp: int
    ) -> memoryview:
        """Copy an entry, give it its offset and epoch, and return the copy. The hot path."""
        fill = self._fill
        after = fill + size
        if after > self._room:
            self._grow(size)
            fill = 0
            after = size
        chunk = self._chunk
        view = chunk if isinstance(chunk, memoryview) else memoryview(chunk)
        stored = view[fill:after]
        put(stored, 0, entry)
        put_stamp(stored, base_offset, size, owner_epoch)
        self._fill = after
        position = self.end
        self.end = position + size
        if position >= self._next_mark:
            self._mark(position, base_offset)
            self._latest = max_timestamp
        elif max_timestamp > self._latest:
            self._latest = max_timestamp
        return stored

    def _mark(self, position: int, base_offset: int) -> None:
        raise NotImplementedError

    def _grow(self, size: int) -> None:
        raise NotImplementedError


class HotAppendTimes:
    """When the entries of a tail became durable."""

    __slots__ = ("_next", "newest")

    newest: int  # since the last step
    _next: int  # position where the step ends

    def note(self, end: int, append_ms: int) -> None:
        """Entries up to a position in the tail came in a frame of this time."""
        if append_ms > self.newest:  # noqa: PLR1730 -- with each commit; max() is a call
            self.newest = append_ms
        if end >= self._next:
            self._step(end)

    def _step(self, end: int) -> None:
        raise NotImplementedError


class HotPartition:
    """What appends, and what moves when it is durable."""

    __slots__ = (
        "_append_times",
        "_end_position",
        "_journal",
        "_previous",
        "_tail",
        "_transactions",
        "_visible",
        "_waiting",
        "_window",
        "end_offset",
        "high_watermark",
        "owner_epoch",
        "partition_id",
        "patient",
        "tail_formats",
    )

    partition_id: int
    owner_epoch: int
    patient: bool  # whether nobody waits for its appends to be durable
    high_watermark: int  # the durable end: below it entries may be read
    end_offset: int  # the next offset to be given
    tail_formats: int  # a bit for each format of which entries may be in the tail
    _append_times: HotAppendTimes  # of the tail
    _end_position: int  # in the tail, of end_offset
    _journal: HotJournal
    _previous: tuple[int, int]  # the high watermark before this one, and its position
    _tail: HotTail
    _transactions: Transactions | None
    _visible: int  # in the tail, of high_watermark
    _waiting: dict[object, Callable[[], None]]
    _window: HotWindow | None

    def append(self, entry: memoryview, header: EntryHeader) -> int:
        """Take a copy of an entry that was checked, give it the next offsets, return the first.

        It is durable when `journal.on_commit` says so, where `patient` within the journal's
        interval. Raises `DiskFull` (nothing happened) or `StorageFailed`. Nothing is allocated
        here but what the copies need.
        """
        journal = self._journal
        if journal.refusal is not None:
            journal.refuse()
        if not isinstance(header, tuple):
            raise TypeError("a header is a tuple")
        fields = cython.cast(tuple, header)  # of a kind that the compiler would not take for one
        attributes = fields[_ATTRIBUTES]
        size = len(entry)
        if size > _MAX_ENTRY:
            raise FrameTooLarge(f"an entry of {size} bytes exceeds {MAX_ENTRY}")
        base_offset = self.end_offset
        owner_epoch = self.owner_epoch
        tail = self._tail
        stored = tail.append(entry, size, base_offset, owner_epoch, fields[_MAX_TIMESTAMP])
        window = journal.add_entry(self.partition_id, owner_epoch, stored, self.patient)
        self.end_offset = base_offset + fields[_LAST_OFFSET_DELTA] + 1
        self._end_position = tail.end
        if window is not self._window:
            self._window = window
            window.followers.append(self)
        self.tail_formats |= 1 << (attributes >> _FORMAT_SHIFT & 3)
        if attributes & _TRANSACTIONAL:
            self._appended(entry, header, base_offset)
        return base_offset

    def _appended(self, entry: memoryview, header: EntryHeader, base_offset: int) -> None:
        """Note what an entry of a transaction did."""
        raise NotImplementedError

    def mark(self) -> Mark:
        """Say how far the window that closes goes."""
        self._window = None
        return self.end_offset, self._end_position

    def advance(self, mark: Mark) -> None:
        """Show everything up to the mark to readers."""
        self._previous = (self.high_watermark, self._visible)
        self.high_watermark, self._visible = mark
        self._append_times.note(mark[1], self._journal.durable_ms)
        if self._transactions is not None:
            self._transactions.advance(mark[0])

    def wake(self) -> None:
        """Call those who wait for the high watermark to move."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, NOBODY
        for callback in waiting.values():
            try:
                callback()
            except Exception:  # one reader's mistake must not keep the others waiting
                log.exception("partition.callback_failed", extra={"partition": self.partition_id})
