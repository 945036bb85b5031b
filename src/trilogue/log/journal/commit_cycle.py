# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The journal's commit cycle: one window after another is sealed, written and applied.

It does what every commit does; the rare cases (full windows that wait, files, a full disk, errors)
are left to the journal, which owns it. Compiled (commit_cycle.pxd adds the types), since with one
request in flight it runs once per request; uncompiled it is plain Python. See docs/decisions/0136.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from trilogue.log.files import BLOCK
from trilogue.log.journal.append_buffer import AppendBuffer
from trilogue.log.journal.files import JournalFile
from trilogue.log.journal.limits import JournalLimits
from trilogue.log.journal.window import Window
from trilogue.log.ports import Committer, Scheduler

log = logging.getLogger(__name__)

IDLE_WINDOWS: Final = 3
"""Under load one fills, two are full and one is written; new memory would be 2,048 page faults."""
SPACE_CHECK_BYTES: Final = 4 << 20

_BLOCK = BLOCK
_IDLE_WINDOWS = IDLE_WINDOWS
_SPACE_CHECK_BYTES = SPACE_CHECK_BYTES


class CommitOwner(Protocol):
    """The journal, for its commit cycle."""

    queued: int

    def next_queued(self) -> Window:
        """Take the oldest of the full windows that wait."""

    def open_file(self) -> JournalFile:
        """Return the file for the first frame of this process, or of this file."""

    def start_interval(self) -> None:
        """Commit deferred entries within the interval."""

    def has_file_ready(self) -> bool:
        """Whether another prepared file can be taken at once."""

    def seal_file(self, file: JournalFile) -> None:
        """Seal a file that takes no more frames."""

    def check_space(self) -> None:
        """Look how much of the disk is free."""

    def fail(self, error: int) -> None:
        """Fail everything: a write ended with this errno."""


class CommitCycle:
    """The window that is written, and the counts of those that were."""

    def __init__(
        self,
        owner: CommitOwner,
        buffer: AppendBuffer,
        committer: Committer,
        *,
        scheduler: Scheduler,
        now_ms: Callable[[], int],
        limits: JournalLimits,
        monotonic: Callable[[], float],
        on_commit_seconds: Callable[[float], None],
        node_id: int,
        node_epoch: int,
        last_sequence: int,
    ) -> None:
        self.busy: Window | None = None  # it is being written
        self.file: JournalFile | None = None
        self.idle: list[Window] = []
        self.is_stopped = False  # by an error or by the end: nothing is submitted
        self.is_closing = False
        self.is_seal_wanted = False  # the file is to end with the frame that is being written
        self.is_dirty = False  # whether this process has written a frame
        self.is_timed = False  # whether deferred entries wait for the interval
        self.on_durable: Callable[[], None] | None = None  # called after each commit's effects
        self.last_sequence = last_sequence
        self.durable_through = last_sequence
        self.commits = 0
        self.entries = 0
        self.facts = 0
        self.bytes_written = 0
        self.unchecked_bytes = 0
        self._owner = owner
        self._buffer = buffer
        self._submit = committer.submit
        self._call_soon = scheduler.call_soon
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._on_commit_seconds = on_commit_seconds
        self._submitted_s = 0.0
        self._file_bytes = limits.file_bytes
        self._first_file_bytes = limits.first_file_bytes
        self._file_entries = limits.file_entries
        self._window_bytes = limits.window_bytes
        self._reused_bytes = len(buffer.window.view)  # only windows of this size are used again
        self._node_id = node_id
        self._node_epoch = node_epoch
        self._frame_bytes = 0  # of the busy window, with its padding
        self._kick = self.kick

    def schedule_commit(self, deferred: bool) -> None:
        """Commit the window that fills: when the disk is idle, or within the interval."""
        if deferred:
            if not self.is_timed:
                self.is_timed = True
                self._owner.start_interval()
            return
        self._buffer.is_scheduled = True
        if self.busy is None:
            self._call_soon(self._kick)

    def take_fresh(self) -> Window:
        """Return an empty window of the usual size."""
        return self.idle.pop() if self.idle else Window(self._window_bytes)

    def next_window(self) -> Window | None:
        """Return the oldest window that is due; replace it if it is the one that fills."""
        if self._owner.queued:
            return self._owner.next_queued()
        buffer = self._buffer
        window = buffer.window
        if window.is_empty or not (buffer.is_scheduled or self.is_closing):
            return None
        window.close()
        buffer.window = self.take_fresh()
        buffer.is_scheduled = False
        return window

    def kick(self) -> None:
        """Write the next window, unless one is being written."""
        if self.busy is not None or self.is_stopped:
            return
        window = self.next_window()
        if window is None:
            self._buffer.is_scheduled = False
            return
        self.busy = window
        try:
            frame = self.prepare(window, 0)
        except OSError as error:
            self._owner.fail(error.errno or 0)
            return
        file = self.file
        assert file is not None
        self._submitted_s = self._monotonic()
        self._submit(file.file, frame, file.position)

    def prepare(self, window: Window, flags: int) -> memoryview:
        """Make the window the next frame of the current file, which is opened if needed."""
        file = self.file
        if file is None or not self.is_dirty:
            file = self.file = self._owner.open_file()
            self.is_dirty = True
        now_ms = self._now_ms()
        self.last_sequence += 1
        frame = window.seal(
            seed=file.seed,
            flags=flags,
            sequence=self.last_sequence,
            durable_through=self.durable_through,
            node_id=self._node_id,
            node_epoch=self._node_epoch,
            append_time_ms=now_ms,
        )
        self._frame_bytes = len(frame)
        if file.position == _BLOCK:  # it has no frame yet
            file.first_sequence = self.last_sequence
            file.first_append_ms = now_ms
        return frame

    def finish(self, result: int) -> None:
        """Handle the end of a write that was submitted."""
        self._on_commit_seconds(self._monotonic() - self._submitted_s)
        self.finish_commit(result)

    def finish_commit(self, result: int) -> None:
        """Handle the end of the busy window's commit: 0 or an errno."""
        if result:
            self._owner.fail(result)
            return
        window, file = self.busy, self.file
        assert window is not None
        assert file is not None
        size = self._frame_bytes
        file.position = position = file.position + size
        file.entry_count += window.entry_count
        file.last_sequence = self.durable_through = window.sequence
        self.commits += 1
        self.entries += window.entry_count
        self.facts += window.fact_count
        self.bytes_written += size
        self.unchecked_bytes += size
        if self.unchecked_bytes >= _SPACE_CHECK_BYTES:
            self._owner.check_space()
        is_due = (
            self.is_seal_wanted
            or position >= self._file_bytes
            or file.entry_count >= self._file_entries
            # beyond the zero-filled blocks commits are slow: change files as soon as that helps
            or (
                position >= self._first_file_bytes
                and position >= file.prepared
                and self._owner.has_file_ready()
            )
        )
        if is_due:
            self.file = None
            self.is_seal_wanted = False
        self.busy = None
        self.kick()
        self._apply(window)
        if is_due:
            self._owner.seal_file(file)
        if self.on_durable is not None:
            self.on_durable()

    def _apply(self, window: Window) -> None:
        """Run everything that waited for this window, then reuse it."""
        window.advance()
        for callback in window.callbacks:
            try:  # an error in one callback must not keep the others waiting
                callback(None)
            except Exception:
                log.exception("journal.callback_failed")
        if len(window.view) == self._reused_bytes and len(self.idle) < _IDLE_WINDOWS:
            window.reset()
            self.idle.append(window)
