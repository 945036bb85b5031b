# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""A window: the frame that fills while the frame before it is committed.

Its memory is page-aligned and a multiple of the block size, so that direct I/O writes it without a
copy; everything is copied into it, because direct I/O takes no buffers of another alignment
(measured: not slower than a gathering write). Entries are written where they will lie on disk;
facts, which are few and small, stay in a list until the window is sealed.

Compiled (window.pxd adds the types), since `add_entry` runs once per entry; uncompiled it is plain
Python. See docs/decisions/0061.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import cython

from trilogue.entry.checksum import WORTH_COMBINING, crc32c, crc32c_around
from trilogue.entry.header import CHECKED_FROM
from trilogue.log.errors import FrameTooLarge, StorageFailed
from trilogue.log.files import BLOCK
from trilogue.log.journal import frame as journal_frame
from trilogue.log.journal.frame import FACT, FRAME_HEADER, PREFIX, entry_checksum, padded
from trilogue.log.memory import aligned

if not cython.compiled:  # window.pxd imports the compiled version
    from trilogue.entry.memory import copy_view, store32, store64, writable_bytes_of

Mark: TypeAlias = "tuple[int, int]"
CommitCallback: TypeAlias = "Callable[[StorageFailed | None], None]"

_PREFIX_SIZE = PREFIX.size
_WORTH_COMBINING = WORTH_COMBINING
_BLOCK = BLOCK
_ZEROS = memoryview(bytes(BLOCK))
_MAX_FRAME = journal_frame.MAX_FRAME
_FRAME_MAGIC = journal_frame.FRAME_MAGIC
_VERSION = journal_frame.VERSION
_MAGIC_AT = journal_frame.MAGIC_AT
_CHECKSUM_AT = journal_frame.CHECKSUM_AT
_FRAME_CHECKED_FROM = journal_frame.CHECKED_FROM
_VERSION_AT = journal_frame.VERSION_AT
_LENGTH_AT = journal_frame.LENGTH_AT
_SEQUENCE_AT = journal_frame.SEQUENCE_AT
_DURABLE_AT = journal_frame.DURABLE_AT
_NODE_ID_AT = journal_frame.NODE_ID_AT
_NODE_EPOCH_AT = journal_frame.NODE_EPOCH_AT
_APPEND_TIME_AT = journal_frame.APPEND_TIME_AT
_ENTRY_COUNT_AT = journal_frame.ENTRY_COUNT_AT
_FACT_COUNT_AT = journal_frame.FACT_COUNT_AT
_FACTS_BEGIN_AT = journal_frame.FACTS_BEGIN_AT
_LAST_WORD_AT = journal_frame.LAST_WORD_AT


class CommitListener(Protocol):
    """The appender of a partition that has entries in a window."""

    def mark(self) -> Mark:
        """Return the end of the entries added so far; the window accepts no more after that."""

    def advance(self, mark: Mark, append_time_ms: int) -> None:
        """Everything up to this mark is durable, in a frame of this append time."""

    def wake(self) -> None:
        """Call the waiting readers, now that every listener of the window has advanced."""


class Window:
    """A frame that is being filled, and the callbacks for when it is durable.

    `used` is where the next entry goes and `limit` where entries have to end, so that the facts
    fit behind them. `known` lists parts whose checksum is known: start, end, checksum.
    """

    __slots__ = (
        "append_time_ms",
        "callbacks",
        "entry_count",
        "fact_count",
        "facts",
        "known",
        "limit",
        "listeners",
        "marks",
        "sequence",
        "used",
        "view",
    )

    def __init__(self, capacity: int) -> None:
        self.view = aligned(padded(capacity))
        self.reset()

    def reset(self) -> None:
        """Empty the window for its next frame."""
        self.used = FRAME_HEADER
        self.limit = len(self.view)
        self.entry_count = 0
        self.fact_count = 0
        self.facts: list[tuple[int, bytes]] = []
        self.known: list[tuple[int, int, int]] = []
        self.listeners: list[CommitListener] = []
        self.marks: list[tuple[CommitListener, Mark]] = []
        self.callbacks: list[CommitCallback] = []
        self.sequence = 0
        self.append_time_ms = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.entry_count and not self.facts

    def add_entry(self, partition_id: int, owner_epoch: int, entry: memoryview) -> None:
        """Copy an entry and its prefix behind the last one; the caller has checked the limit.

        Raises `ValueError` where the window has no room for it.
        """
        start = self.used
        entry_at = start + _PREFIX_SIZE
        size = len(entry)
        copy_view(self.view, entry_at, entry)
        data = writable_bytes_of(self.view)
        store64(data, start, partition_id)
        store32(data, start + 8, owner_epoch)
        store32(data, start + 12, 0)
        self.used = entry_at + size
        self.entry_count += 1
        if size + _PREFIX_SIZE > _WORTH_COMBINING:
            self.known.append((entry_at + CHECKED_FROM, self.used, entry_checksum(entry, 0)))

    def close(self) -> None:
        """Accept no more entries: the listeners now add to another window."""
        marks = []
        for listener in self.listeners:
            marks.append((listener, listener.mark()))  # noqa: PERF401 -- compiled it is as fast
        self.marks = marks

    def advance(self) -> None:
        """Advance every partition with entries in the durable frame, then wake their readers."""
        for listener, mark in self.marks:
            listener.advance(mark, self.append_time_ms)
        for listener, _ in self.marks:
            listener.wake()

    def compute_checksum(self) -> None:
        """Compute the checksum of the entries while the disk is busy with another window.

        Only for a closed window; `seal` then adds no more than the header and the facts.
        """
        parts = [(start - FRAME_HEADER, end - FRAME_HEADER, crc) for start, end, crc in self.known]
        checksum = crc32c_around(self.view[FRAME_HEADER : self.used], parts)
        self.known = [(FRAME_HEADER, self.used, checksum)]

    def seal(  # noqa: PLR0917 - once per commit
        self,
        seed: int,
        flags: int,
        sequence: int,
        durable_through: int,
        node_id: int,
        node_epoch: int,
        append_time_ms: int,
    ) -> memoryview:
        """Complete the frame and return it with its padding, as it goes to disk."""
        view = self.view
        end = facts_at = self.used
        for kind, payload in self.facts:
            FACT.pack_into(view, end, kind, 0, len(payload))
            end += FACT.size
            view[end : end + len(payload)] = payload
            end += len(payload)
        self.fact_count = len(self.facts)
        self.sequence = sequence
        self.append_time_ms = append_time_ms
        self._write_header(
            end, seed, flags, sequence, durable_through, node_id, node_epoch, facts_at
        )
        size = (end + _BLOCK - 1) & -_BLOCK  # `padded`, without its call
        view[end:size] = _ZEROS[: size - end]
        return view[:size]

    def _write_header(  # noqa: PLR0917 - once per commit
        self,
        end: int,
        seed: int,
        flags: int,
        sequence: int,
        durable_through: int,
        node_id: int,
        node_epoch: int,
        facts_at: int,
    ) -> None:
        """Write what `frame.encode_frame_header` writes, field by field."""
        if end > _MAX_FRAME:
            raise FrameTooLarge(f"a frame of {end} bytes exceeds {_MAX_FRAME}")
        view = self.view
        data = writable_bytes_of(view)
        store32(data, _MAGIC_AT, _FRAME_MAGIC)
        store32(data, _VERSION_AT, _VERSION << 24 | flags << 16)
        store32(data, _LENGTH_AT, end)
        store64(data, _SEQUENCE_AT, sequence)
        store64(data, _DURABLE_AT, durable_through)
        store32(data, _NODE_ID_AT, node_id)
        store32(data, _NODE_EPOCH_AT, node_epoch)
        store64(data, _APPEND_TIME_AT, self.append_time_ms)
        store32(data, _ENTRY_COUNT_AT, self.entry_count)
        store32(data, _FACT_COUNT_AT, self.fact_count)
        store32(data, _FACTS_BEGIN_AT, facts_at)
        store32(data, _LAST_WORD_AT, 0)
        start = _FRAME_CHECKED_FROM
        if self.known:
            parts = [(part - start, to - start, crc) for part, to, crc in self.known]
            checksum = crc32c_around(view[start:end], parts, seed)
        else:
            checksum = crc32c(view[start:end], seed)
        store32(data, _CHECKSUM_AT, checksum - (checksum >> 31 << 32))  # as a signed number
