# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The journal's append buffer: entries go into the window that fills.

It does what every append does; the rare cases (a full window, the first entry of a window, a
refusal) are left to the journal, which owns it. Compiled (append_buffer.pxd adds the types), since
it runs once per entry; uncompiled it is plain Python. See docs/decisions/0061.
"""

from __future__ import annotations

from typing import Protocol

from trilogue.log.errors import LogError
from trilogue.log.journal.frame import MAX_ENTRY, PREFIX
from trilogue.log.journal.window import CommitCallback, Window

_PREFIX_SIZE = PREFIX.size
_MAX_SIZE = MAX_ENTRY + PREFIX.size


class WindowScheduler(Protocol):
    """The journal, for its append buffer: it replaces windows and commits them."""

    def refuse(self) -> None:
        """Raise the reason why appends are refused now, unless it has passed."""

    def replace_window(self, size: int, size_max: int) -> Window:
        """Return a new filling window with room for `size` more bytes.

        Raises `FrameTooLarge` above `size_max`.
        """

    def schedule_commit(self, deferred: bool) -> None:
        """Commit the window that fills: when the disk is idle, or within the interval."""

    def wait_for_commit(self, callback: CommitCallback) -> None:
        """Call `callback` when everything added so far is durable, or never will be."""


class AppendBuffer:
    """The window that fills, and whether entries are refused."""

    def __init__(self, scheduler: WindowScheduler, window: Window) -> None:
        self.window = window
        self.is_scheduled = False  # whether the window is committed as soon as the disk is idle
        self.refusal: LogError | None = None  # why appends are refused
        self._scheduler = scheduler

    def check(self) -> None:
        """Raise the reason why appends are refused now, unless it has passed."""
        self._scheduler.refuse()

    def add_entry(
        self,
        partition_id: int,
        owner_epoch: int,
        entry: memoryview,
        deferred: bool = False,
    ) -> Window:
        """Copy an entry into the window that fills and return that window.

        The window is committed as soon as the disk is idle, or, if all of it is `deferred`,
        within the journal's interval. Raises `DiskFull`, `TailFull`, `StorageFailed` or
        `FrameTooLarge`.
        """
        if self.refusal is not None:
            self.check()
        size = _PREFIX_SIZE + len(entry)
        window = self.window
        if window.used + size > window.limit:
            window = self._scheduler.replace_window(size, _MAX_SIZE)
        window.add_entry(partition_id, owner_epoch, entry)
        if not self.is_scheduled:
            self._scheduler.schedule_commit(deferred)
        return window

    def on_commit(self, callback: CommitCallback) -> None:
        """Call `callback` with None when all entries so far are durable, or with the error.

        The call is made on the event loop, in a later iteration.
        """
        window = self.window
        if self.refusal is None and self.is_scheduled and (window.entry_count or window.facts):
            window.callbacks.append(callback)
        else:
            self._scheduler.wait_for_commit(callback)
