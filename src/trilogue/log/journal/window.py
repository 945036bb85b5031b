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

from trilogue.entry.checksum import WORTH_COMBINING, crc32c_around
from trilogue.entry.header import CHECKED_FROM
from trilogue.log.errors import StorageFailed
from trilogue.log.files import BLOCK
from trilogue.log.journal.frame import (
    FACT,
    FRAME_HEADER,
    PREFIX,
    encode_frame_header,
    entry_checksum,
    padded,
)
from trilogue.log.memory import aligned

if not cython.compiled:  # window.pxd imports the compiled version
    from trilogue.entry.memory import copy_view, store32, store64, writable_bytes_of

Mark: TypeAlias = "tuple[int, int]"
CommitCallback: TypeAlias = "Callable[[StorageFailed | None], None]"

_PREFIX_SIZE = PREFIX.size
_WORTH_COMBINING = WORTH_COMBINING
_ZEROS = memoryview(bytes(BLOCK))


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

    def seal(
        self,
        *,
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
        encode_frame_header(
            view[:end],
            seed=seed,
            flags=flags,
            sequence=sequence,
            durable_through=durable_through,
            node_id=node_id,
            node_epoch=node_epoch,
            append_time_ms=append_time_ms,
            entry_count=self.entry_count,
            fact_count=self.fact_count,
            facts_at=facts_at,
            known=self.known,
        )
        size = padded(end)
        view[end:size] = _ZEROS[: size - end]
        return view[:size]
