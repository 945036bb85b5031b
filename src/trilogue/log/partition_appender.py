# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Appends entries to one partition, and moves its high watermark when they are durable.

    PartitionAppender.append ──► Tail.append ──► AppendBuffer.add_entry ──► Window.add_entry
    Window.close ──► PartitionAppender.mark     Window.advance ──► PartitionAppender.advance, wake

`PartitionLog` owns one and reads from the same tail. Compiled (partition_appender.pxd adds the
types), since it runs once per entry and once per partition in a commit: the four classes above call
each other without Python between them. Uncompiled it is plain Python. See docs/decisions/0061.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import cython

from trilogue.entry.entry import FORMAT_SHIFT, TRANSACTIONAL, EntryHeader
from trilogue.log.errors import FrameTooLarge
from trilogue.log.journal.append_buffer import AppendBuffer
from trilogue.log.journal.frame import MAX_ENTRY
from trilogue.log.journal.window import Mark, Window
from trilogue.log.tail.append_times import AppendTimes
from trilogue.log.tail.tail import Tail
from trilogue.log.transactions import Transactions, TransactionStep, read_transaction_step

log = logging.getLogger(__name__)

NO_WATCHERS: Final[dict[object, Callable[[], None]]] = {}  # shared and never added to

_MAX_ENTRY = MAX_ENTRY
_FORMAT_SHIFT = FORMAT_SHIFT
_TRANSACTIONAL = TRANSACTIONAL
# A header's fields by index: it is a tuple, and a look-up by name costs more.
_ATTRIBUTES = EntryHeader._fields.index("attributes")
_LAST_OFFSET_DELTA = EntryHeader._fields.index("last_offset_delta")
_MAX_TIMESTAMP = EntryHeader._fields.index("max_timestamp")


class PartitionAppender:
    """The end of a partition's log: the next offset, the high watermark, and their positions.

    `end_position` and `durable_position` are those of `end_offset` and `high_watermark` in the
    tail; `previous_watermark` is the high watermark before this one, with its position.
    `tail_formats` has bit 1 << Format for each format of which entries may be in the tail.
    """

    __slots__ = (
        "_buffer",
        "_window",
        "acks_from_memory",
        "append_times",
        "durable_position",
        "end_offset",
        "end_position",
        "high_watermark",
        "owner_epoch",
        "partition_id",
        "previous_watermark",
        "tail",
        "tail_formats",
        "transactions",
        "watchers",
    )

    def __init__(
        self,
        partition_id: int,
        owner_epoch: int,
        *,
        end_offset: int,
        buffer: AppendBuffer,
        tail: Tail,
        open_transactions: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.partition_id = partition_id
        self.owner_epoch = owner_epoch
        self.acks_from_memory = False  # whether appends are acknowledged before they are durable
        self.end_offset = end_offset
        self.high_watermark = end_offset
        self.end_position = 0
        self.durable_position = 0
        self.previous_watermark: Mark = (end_offset, 0)
        self.tail = tail
        self.tail_formats = 0
        self.append_times = AppendTimes()
        self.transactions: Transactions | None = None
        if open_transactions:
            self.transactions = Transactions(open_transactions)
        self.watchers = NO_WATCHERS  # to be called once when the high watermark moves
        self._buffer = buffer
        self._window: Window | None = None  # the last one that received an entry

    def append(self, entry: memoryview, header: EntryHeader) -> int:
        """Copy an entry that was validated, assign the next offsets, and return the first of them.

        It is durable when `Journal.on_commit` reports it; with `acks_from_memory` that is within
        the journal's interval. Raises `DiskFull`, `TailFull` or `StorageFailed`; nothing is
        appended then.
        """
        if not isinstance(header, tuple):
            raise TypeError("a header is a tuple")
        fields = cython.cast(tuple, header)  # the compiler accepts no named tuple as a tuple
        attributes = fields[_ATTRIBUTES]
        base_offset = self.append_plain(
            entry, attributes, fields[_LAST_OFFSET_DELTA], fields[_MAX_TIMESTAMP]
        )
        if attributes & _TRANSACTIONAL:
            self.note_transaction(read_transaction_step(entry, header, base_offset))
        return base_offset

    def append_plain(
        self, entry: memoryview, attributes: int, last_offset_delta: int, max_timestamp: int
    ) -> int:
        """Append an entry that is not of a transaction by the fields of its header."""
        buffer = self._buffer
        if buffer.refusal is not None:
            buffer.check()
        size = len(entry)
        if size > _MAX_ENTRY:
            raise FrameTooLarge(f"an entry of {size} bytes exceeds {MAX_ENTRY}")
        base_offset = self.end_offset
        owner_epoch = self.owner_epoch
        tail = self.tail
        stored = tail.append(entry, size, base_offset, owner_epoch, max_timestamp)
        window = buffer.add_entry(self.partition_id, owner_epoch, stored, self.acks_from_memory)
        self.end_offset = base_offset + last_offset_delta + 1
        self.end_position = tail.end
        if window is not self._window:
            self._window = window
            window.listeners.append(self)
        self.tail_formats |= 1 << (attributes >> _FORMAT_SHIFT & 3)
        return base_offset

    def restore(
        self,
        entry: memoryview,
        base_offset: int,
        end_offset: int,
        owner_epoch: int,
        *,
        max_timestamp: int,
        append_time_ms: int,
        formats: int,
    ) -> None:
        """Put an entry that is durable in the journal back into the tail; for recovery."""
        self.tail_formats |= formats
        tail = self.tail
        tail.append(entry, len(entry), base_offset, owner_epoch, max_timestamp)
        self.end_offset = self.high_watermark = end_offset
        self.end_position = self.durable_position = tail.end
        self.append_times.note(tail.end, append_time_ms)

    def note_transaction(self, step: TransactionStep | None) -> None:
        """Queue what an entry does to transactions until the entry is durable."""
        if step is not None:
            if self.transactions is None:
                self.transactions = Transactions()
            self.transactions.appended(step)

    def mark(self) -> Mark:
        """Return the end of the entries in the window that closes."""
        self._window = None
        return self.end_offset, self.end_position

    def advance(self, mark: Mark, append_time_ms: int) -> None:
        """Move the high watermark to the mark."""
        self.previous_watermark = (self.high_watermark, self.durable_position)
        self.high_watermark, self.durable_position = mark
        self.append_times.note(self.durable_position, append_time_ms)
        if self.transactions is not None:
            self.transactions.advance(self.high_watermark)

    def wake(self) -> None:
        """Call the watchers of the high watermark, and forget them."""
        if not self.watchers:
            return
        watchers, self.watchers = self.watchers, NO_WATCHERS
        for callback in watchers.values():
            try:
                callback()
            except Exception:  # an error in one reader must not keep the others waiting
                log.exception("partition.callback_failed", extra={"partition": self.partition_id})
