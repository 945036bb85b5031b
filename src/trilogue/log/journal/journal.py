"""The journal: what many partitions append at once becomes durable by one write.

While one window is committed the next one fills, and the end of the first commit starts the second:
no timer is involved, a lone entry is written at once and concurrent ones share a write. Only
`deferred` entries (of topics that are acknowledged from memory) may stay in a window for
`interval_s`; it is committed earlier when it is full or holds an entry that is not deferred. When a
window has become durable, in this order and in one callback: the next commit is started; the
partitions' high watermarks move and their readers are woken; the callbacks of `on_commit` run; if
the file is full it is sealed and `on_sealed` runs. So `on_sealed` sees the state after the file's
last frame and before any later one: the cut of a flush.

An error is final. Nothing is written again, every waiting callback gets `StorageFailed`, every
later append is refused with it, `on_failed` runs, and the process is expected to end.

    add_entry, add_fact --> the window that fills --> queue (full ones) --> busy --> durable

The window that fills is in an `AppendBuffer` (append_buffer.py), which is compiled.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from trilogue.log.errors import DiskFull, FrameTooLarge, LogError, StorageFailed, TailFull
from trilogue.log.files import BLOCK
from trilogue.log.journal.append_buffer import AppendBuffer
from trilogue.log.journal.files import JournalFile, JournalFiles, SealedFile
from trilogue.log.journal.frame import (
    CLEAN,
    FACT,
    FRAME_HEADER,
    MAX_FACT,
)
from trilogue.log.journal.limits import JournalCounts, JournalLimits
from trilogue.log.journal.window import CommitCallback, Window
from trilogue.log.ports import Committer, Scheduler

__all__ = ["Journal", "JournalCounts", "JournalLimits"]

log = logging.getLogger(__name__)

SPACE_CHECK_BYTES: Final = 4 << 20
SPACE_CHECK_SECONDS: Final = 0.25
IDLE_WINDOWS: Final = 3
"""Under load one fills, two are full and one is written; new memory would be 2,048 page faults."""


class Journal:
    """One stream of frames through recycled files. It and all its callers run on the loop."""

    def __init__(
        self,
        *,
        files: JournalFiles,
        committer: Committer,
        scheduler: Scheduler,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        free_bytes: Callable[[], int],
        node_id: int,
        node_epoch: int,
        last_sequence: int = 0,
        limits: JournalLimits | None = None,
    ) -> None:
        self.limits = limits or JournalLimits()
        self.counts = JournalCounts()
        self.on_sealed: Callable[[SealedFile], None] = _ignore
        self.on_failed: Callable[[StorageFailed], None] = _ignore
        self.on_durable: Callable[[], None] = _nothing  # called after each commit's effects
        self.durable_through = last_sequence
        self._last_sequence = last_sequence
        self._files = files
        self._committer = committer
        self._scheduler = scheduler
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._free_bytes = free_bytes
        self._node_id = node_id
        self._node_epoch = node_epoch
        self._file: JournalFile | None = None
        self.buffer = AppendBuffer(self, Window(self.limits.window_bytes))
        self.add_entry = self.buffer.add_entry
        self.on_commit = self.buffer.on_commit
        self._idle: list[Window] = []
        self._queue: deque[Window] = deque()
        self.queued = 0  # full windows that wait for the disk: more is appended than is written
        self._busy: Window | None = None
        self._timed = False  # whether deferred entries wait for the interval
        self._seal_wanted = False
        self._dirty = False  # whether this process has written a frame
        self._closing = False
        self._failure: StorageFailed | None = None
        self._disk_full: DiskFull | None = None
        self._unchecked_bytes = 0
        self._checked_at = monotonic()

    def start(self) -> None:
        """Open the first file to write and start to commit. Raises `OSError`."""
        self.check_space()
        self._file = self._files.take_file(self.limits.first_file_bytes, prepare_next=False)
        self._committer.start(self._done)

    # -- adding ----------------------------------------------------------------------------

    def add_fact(self, kind: int, payload: bytes, deferred: bool = False) -> None:
        """Add a small fact to the window that fills, even on a full disk, since facts free space.

        A `deferred` one is committed with the next commit, within `interval_s`.
        """
        if self._failure is not None:
            self.refuse()
        if len(self._queue) > 2 * self.limits.queued_windows:
            self.refuse()
        size = FACT.size + len(payload)
        window = self.buffer.window
        if window.used + size > window.limit:
            window = self.replace_window(size, MAX_FACT + FACT.size)
        window.facts.append((kind, payload))
        window.limit -= size
        if not self.buffer.is_scheduled:
            self.schedule_commit(deferred)

    def wait_for_commit(self, callback: CommitCallback) -> None:
        """Call `callback` when everything added so far is durable: all cases of `on_commit`."""
        failure = self._failure
        if failure is not None:
            self._scheduler.call_soon(lambda: callback(failure))
        elif (window := self.buffer.window).entry_count or window.facts:
            window.callbacks.append(callback)
            if not self.buffer.is_scheduled:
                self._schedule_commit()
        elif self._queue:
            self._queue[-1].callbacks.append(callback)
        elif self._busy is not None:
            self._busy.callbacks.append(callback)
        else:
            self._scheduler.call_soon(lambda: callback(None))

    def refuse(self) -> None:
        """Raise the reason why appends are refused now, unless it has passed."""
        if self._disk_full and self._monotonic() - self._checked_at >= SPACE_CHECK_SECONDS:
            self.check_space()
        refusal = self.buffer.refusal
        if refusal is not None:  # a new exception: its traceback grows each time it is raised
            raise type(refusal)(*refusal.args)

    def check_disk(self) -> None:
        """Raise `DiskFull` while the disk is full."""
        if self._disk_full is not None:
            self.refuse()

    def find_disk_full(self) -> DiskFull | None:
        """Return why there is no room on the disk; None if there is. It is looked at rarely."""
        if self._monotonic() - self._checked_at >= SPACE_CHECK_SECONDS:
            self.check_space()
        return self._disk_full

    @property
    def refusal(self) -> LogError | None:
        """Why appends are refused now; None while they are accepted."""
        return self.buffer.refusal

    # -- state -----------------------------------------------------------------------------

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest frame that was sent to the disk, durable or not."""
        return self._last_sequence

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for the disk."""
        return self._busy is None and not self._queue and self.buffer.window.is_empty

    @property
    def unsealed_entries(self) -> int:
        """The number of entries in the current file."""
        return 0 if self._file is None else self._file.entry_count

    @property
    def unsealed_since_ms(self) -> int | None:
        """Append time of the first frame in the current file; None while it is empty."""
        file = self._file
        return None if file is None or file.is_empty else file.first_append_ms

    # -- committing ------------------------------------------------------------------------

    def schedule_commit(self, deferred: bool) -> None:
        """Commit the window that fills: when the disk is idle, or within the interval."""
        if not deferred:
            self._schedule_commit()
        elif not self._timed:
            self._timed = True
            self._scheduler.call_later(self.limits.interval_s, self._time_over)

    def _schedule_commit(self) -> None:
        self.buffer.is_scheduled = True
        if self._busy is None:
            self._scheduler.call_soon(self._kick)

    def _time_over(self) -> None:
        """End the interval of deferred entries, which an earlier commit may have included."""
        self._timed = False
        if not self.buffer.is_scheduled and not self.buffer.window.is_empty:
            self._schedule_commit()

    def replace_window(self, size: int, size_max: int) -> Window:
        """Replace the window that fills because it has no room for `size` more bytes."""
        if size > size_max:
            raise FrameTooLarge(f"{size} bytes exceed {size_max}, the limit of a frame")
        window = self.buffer.window
        if window.is_empty:
            self._idle.append(window)
        else:
            window.close()
            window.compute_checksum()
            self._queue.append(window)
            self._decide()
        if FRAME_HEADER + size > self.limits.window_bytes:
            self.buffer.window = Window(FRAME_HEADER + size)
        else:
            self.buffer.window = self._fresh()
        if self._busy is None:
            self._kick()
        if self._failure is not None:
            self.refuse()
        return self.buffer.window

    def _decide(self) -> None:
        """Recompute whether appends are refused, and why; called after each change of the queue."""
        self.queued = len(self._queue)
        if self._failure is not None:
            self.buffer.refusal = self._failure
        elif self._disk_full is not None:
            self.buffer.refusal = self._disk_full
        elif len(self._queue) >= self.limits.queued_windows:
            self.buffer.refusal = TailFull("the disk does not keep up")
        else:
            self.buffer.refusal = None

    def _fresh(self) -> Window:
        return self._idle.pop() if self._idle else Window(self.limits.window_bytes)

    def _next_window(self) -> Window | None:
        """Return the oldest window that is due; replace it if it is the one that fills."""
        if self._queue:
            window = self._queue.popleft()
            self._decide()
            return window
        window = self.buffer.window
        if window.is_empty or not (self.buffer.is_scheduled or self._closing):
            return None
        window.close()
        self.buffer.window = self._fresh()
        self.buffer.is_scheduled = False
        return window

    def _kick(self) -> None:
        if self._busy is not None or self._failure is not None or self._closing:
            return
        window = self._next_window()
        if window is None:
            self.buffer.is_scheduled = False
            return
        self._busy = window
        try:
            file, frame = self._prepare(window, 0)
        except OSError as error:
            self._fail(error.errno or 0)
            return
        self._committer.submit(file.file, frame, file.position)

    def _prepare(self, window: Window, flags: int) -> tuple[JournalFile, memoryview]:
        """Make the window the next frame of the current file, which is opened if needed."""
        file = self._file
        if file is None:
            self.counts.spares_late += not self._files.is_ready
            file = self._file = self._files.take_file()
        elif not self._dirty:  # a journal without frames needs no second file on the disk
            self._files.prepare_spare()
        self._dirty = True
        now_ms = self._now_ms()
        self._last_sequence += 1
        frame = window.seal(
            seed=file.seed,
            flags=flags,
            sequence=self._last_sequence,
            durable_through=self.durable_through,
            node_id=self._node_id,
            node_epoch=self._node_epoch,
            append_time_ms=now_ms,
        )
        if file.is_empty:
            file.first_sequence = self._last_sequence
            file.first_append_ms = now_ms
        return file, frame

    def _done(self, result: int) -> None:
        """Handle the end of the busy window's commit."""
        if result:
            self._fail(result)
            return
        window, file = self._busy, self._file
        assert window is not None
        assert file is not None
        size = BLOCK * -(-self._frame_size(window) // BLOCK)
        file.position += size
        file.entry_count += window.entry_count
        file.last_sequence = self.durable_through = window.sequence
        self._count(window, size)
        is_due = self._is_due(file)
        if is_due:
            self._file = None
            self._seal_wanted = False
        self._busy = None
        self._kick()
        self._apply(window)
        if is_due:
            self._seal(file)
        self.on_durable()

    @staticmethod
    def _frame_size(window: Window) -> int:
        return window.used + len(window.view) - window.limit

    def _count(self, window: Window, size: int) -> None:
        counts = self.counts
        counts.commits += 1
        counts.entries += window.entry_count
        counts.facts += window.fact_count
        counts.bytes_written += size
        self._unchecked_bytes += size
        if self._unchecked_bytes >= SPACE_CHECK_BYTES:
            self.check_space()

    def _apply(self, window: Window) -> None:
        """Run everything that waited for this window, then reuse it."""
        window.advance()
        for callback in window.callbacks:
            try:  # as `_run_callback` does
                callback(None)
            except Exception:
                log.exception("journal.callback_failed")
        if len(window.view) == self._window_size and len(self._idle) < IDLE_WINDOWS:
            window.reset()
            self._idle.append(window)

    @property
    def _window_size(self) -> int:
        return BLOCK * -(-self.limits.window_bytes // BLOCK)

    # -- files -----------------------------------------------------------------------------

    def seal(self, now_ms: int | None = None) -> None:
        """Seal the current file after the write under way; given a time, only if the file is old.

        It continues without a next file if a full disk has no room for one: reads still work.
        """
        file = self._file
        if file is None or (file.is_empty and self._busy is None):
            return
        if now_ms is not None:
            since = self.unsealed_since_ms
            if since is None or now_ms - since < self.limits.file_age_ms:
                return
        if not self._files.is_ready and self._free_bytes() < self.limits.window_bytes:
            return
        if self._busy is not None:
            self._seal_wanted = True
        else:
            self._file = None
            self._seal(file)

    def _is_due(self, file: JournalFile) -> bool:
        limits = self.limits
        position = file.position
        return (
            self._seal_wanted
            or position >= limits.file_bytes
            or file.entry_count >= limits.file_entries
            # beyond the zero-filled blocks commits are slow: change files as soon as that helps
            or (position >= max(file.prepared, limits.first_file_bytes) and self._files.is_ready)
        )

    def _seal(self, file: JournalFile) -> None:
        self.counts.files_sealed += 1
        self.on_sealed(file.seal())

    def check_space(self) -> None:
        """Look how much of the disk is free: appends are refused while it is full."""
        self._unchecked_bytes = 0
        self._checked_at = self._monotonic()
        free_bytes = self._free_bytes()
        was_full = self._disk_full is not None
        is_full = free_bytes < self.limits.min_free_bytes
        self._disk_full = (
            DiskFull(f"the disk is full: {free_bytes} bytes are free") if is_full else None
        )
        if is_full and not was_full:
            log.warning("journal.disk_full", extra={"free_bytes": free_bytes})
        elif was_full and not is_full:
            log.info("journal.resumed", extra={"free_bytes": free_bytes})
            self._files.prepare_spare()
        self._decide()

    # -- ends ------------------------------------------------------------------------------

    def _fail(self, error: int) -> None:
        """Fail all waiting callbacks, and refuse every later append."""
        reason = os.strerror(error) if error else "cannot open a journal file"
        failure = StorageFailed(f"the journal could not be written: {reason}")
        log.critical("journal.failed", extra={"errno": error, "reason": reason})
        self.buffer.refusal = self._failure = failure
        busy = [] if self._busy is None else [self._busy]
        windows = (*busy, *self._queue, self.buffer.window)
        callbacks = [callback for window in windows for callback in window.callbacks]
        self._busy = None
        self._queue.clear()
        self.queued = 0
        for window in (*busy, self.buffer.window):
            window.callbacks = []
        for callback in callbacks:
            _run_callback(callback, failure)
        self.on_failed(failure)

    def close(self) -> None:
        """Write what was added, and a last frame that marks all of it as durable; then close."""
        if self._closing:
            return
        self._closing = True
        result = self._committer.close()
        self._files.stop_preparing()
        if self._failure is None and result is not None:
            self._done(result)
        while self._write_now(self._next_window()):
            pass
        if self._dirty:
            self._write_now(Window(BLOCK), CLEAN)
        if self._failure is None:
            self._failure = _Closed("the log is closed")
            self._decide()
        if self._file is not None:
            self._file.file.close()
        self._files.close()

    def _write_now(self, window: Window | None, flags: int = 0) -> bool:
        """Commit a window synchronously; for `close`."""
        if window is None or self._failure is not None:
            return False
        self._busy = window
        try:
            file, frame = self._prepare(window, flags)
        except OSError as error:
            self._fail(error.errno or 0)
            return False
        self._done(self._committer.write_last(file.file, frame, file.position))
        return True


class _Closed(StorageFailed):
    """The log was closed in order: not a failure, but appends are refused."""


def _run_callback(callback: CommitCallback, outcome: StorageFailed | None) -> None:
    try:
        callback(outcome)
    except Exception:  # an error in one callback must not keep the others waiting
        log.exception("journal.callback_failed")


def _ignore(_: object) -> None:
    pass


def _nothing() -> None:
    pass
