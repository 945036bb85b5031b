"""The journal: what many partitions append at once becomes durable by one write.

While one window is committed the next one fills, and the end of the first commit starts the second:
no timer is involved, a lone entry is written at once and concurrent ones share a write. Only
`deferred` entries (of topics that are acknowledged from memory) may stay in a window for
`interval_s`; it is committed earlier when it is full or holds an entry that is not deferred. When a
window has become durable, in this order and in one callback: the next commit is started; the
partitions' high watermarks move and their readers are woken; the callbacks of `on_commit` run; if
the file is full it is sealed and `on_sealed` runs. So `on_sealed` sees the state after the file's
last frame and before any later one: the cut of a flush.

An error is final. Nothing is written again, and what was being written may come back at the next
start: `on_failed` runs, every waiting callback gets `StorageFailed`, every later append is refused
with it, and the process is expected to end.

    add_entry, add_fact --> the window that fills --> queue (full ones) --> busy --> durable

The window that fills is in an `AppendBuffer` (append_buffer.py) and the one that is written in a
`CommitCycle` (commit_cycle.py); both are compiled.
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
from trilogue.log.journal.commit_cycle import CommitCycle
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

SPACE_CHECK_SECONDS: Final = 0.25


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
        on_commit_seconds: Callable[[float], None] | None = None,
    ) -> None:
        self.limits = limits or JournalLimits()
        self.files_sealed = 0
        self.spares_late = 0
        self.on_sealed: Callable[[SealedFile], None] = _ignore
        self.on_failed: Callable[[StorageFailed], None] = _ignore
        self._files = files
        self._committer = committer
        self._scheduler = scheduler
        self._monotonic = monotonic
        self._free_bytes = free_bytes
        self.buffer = AppendBuffer(self, Window(self.limits.window_bytes))
        self.add_entry = self.buffer.add_entry
        self.on_commit = self.buffer.on_commit
        self.cycle = CommitCycle(
            self,
            self.buffer,
            committer,
            scheduler=scheduler,
            now_ms=now_ms,
            limits=self.limits,
            monotonic=monotonic,
            on_commit_seconds=on_commit_seconds or _ignore,
            node_id=node_id,
            node_epoch=node_epoch,
            last_sequence=last_sequence,
        )
        self.schedule_commit = self.cycle.schedule_commit
        self._queue: deque[Window] = deque()
        self.queued = 0  # full windows that wait for the disk: more is appended than is written
        self._failure: StorageFailed | None = None
        self._disk_full: DiskFull | None = None
        self._checked_at = monotonic()

    def start(self) -> None:
        """Open the first file to write and start to commit. Raises `OSError`."""
        self.check_space()
        cycle = self.cycle
        cycle.file = self._files.take_file(self.limits.first_file_bytes, prepare_next=False)
        self._committer.start(cycle.finish)

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
                self.schedule_commit(False)
        elif self._queue:
            self._queue[-1].callbacks.append(callback)
        elif (busy := self.cycle.busy) is not None:
            busy.callbacks.append(callback)
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
        return self.cycle.last_sequence

    @property
    def durable_through(self) -> int:
        """The sequence of the newest frame that is durable."""
        return self.cycle.durable_through

    @property
    def counts(self) -> JournalCounts:
        """What was written since the start."""
        cycle = self.cycle
        return JournalCounts(
            commits=cycle.commits,
            entries=cycle.entries,
            facts=cycle.facts,
            bytes_written=cycle.bytes_written,
            files_sealed=self.files_sealed,
            spares_late=self.spares_late,
        )

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits for the disk."""
        return self.cycle.busy is None and not self._queue and self.buffer.window.is_empty

    @property
    def unsealed_entries(self) -> int:
        """The number of entries in the current file."""
        file: JournalFile | None = self.cycle.file
        return 0 if file is None else file.entry_count

    @property
    def unsealed_since_ms(self) -> int | None:
        """Append time of the first frame in the current file; None while it is empty."""
        file: JournalFile | None = self.cycle.file
        return None if file is None or file.is_empty else file.first_append_ms

    # -- committing ------------------------------------------------------------------------

    def start_interval(self) -> None:
        """Commit the window that fills, which has deferred entries, within the interval."""
        self._scheduler.call_later(self.limits.interval_s, self._time_over)

    def _time_over(self) -> None:
        """End the interval of deferred entries, which an earlier commit may have included."""
        self.cycle.is_timed = False
        if not self.buffer.is_scheduled and not self.buffer.window.is_empty:
            self.schedule_commit(False)

    def replace_window(self, size: int, size_max: int) -> Window:
        """Replace the window that fills because it has no room for `size` more bytes."""
        if size > size_max:
            raise FrameTooLarge(f"{size} bytes exceed {size_max}, the limit of a frame")
        window = self.buffer.window
        if window.is_empty:
            self.cycle.idle.append(window)
        else:
            window.close()
            window.compute_checksum()
            self._queue.append(window)
            self._decide()
        if FRAME_HEADER + size > self.limits.window_bytes:
            self.buffer.window = Window(FRAME_HEADER + size)
        else:
            self.buffer.window = self.cycle.take_fresh()
        self.cycle.kick()
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

    def next_queued(self) -> Window:
        """Take the oldest of the full windows that wait for the disk."""
        window = self._queue.popleft()
        self._decide()
        return window

    def open_file(self) -> JournalFile:
        """Return the file for the next frame: the first of this process, or the first of a file."""
        file: JournalFile | None = self.cycle.file
        if file is None:
            self.spares_late += not self._files.is_ready
            return self._files.take_file()
        self._files.prepare_spare()  # a journal without frames needs no second file on the disk
        return file

    # -- files -----------------------------------------------------------------------------

    def seal(self, now_ms: int | None = None) -> None:
        """Seal the current file after the write under way; given a time, only if the file is old.

        It continues without a next file if a full disk has no room for one: reads still work.
        """
        file: JournalFile | None = self.cycle.file
        is_busy = self.cycle.busy is not None
        if file is None or (file.is_empty and not is_busy):
            return
        if now_ms is not None:
            since = self.unsealed_since_ms
            if since is None or now_ms - since < self.limits.file_age_ms:
                return
        if not self._files.is_ready and self._free_bytes() < self.limits.window_bytes:
            return
        if is_busy:
            self.cycle.is_seal_wanted = True
        else:
            self.cycle.file = None
            self.seal_file(file)

    def has_file_ready(self) -> bool:
        """Whether another prepared file can be taken at once."""
        return self._files.is_ready

    def seal_file(self, file: JournalFile) -> None:
        """Seal a file that takes no more frames."""
        self.files_sealed += 1
        self.on_sealed(file.seal())

    def check_space(self) -> None:
        """Look how much of the disk is free: appends are refused while it is full."""
        self.cycle.unchecked_bytes = 0
        self._checked_at = self._monotonic()
        free_bytes = self._free_bytes()
        was_full = self._disk_full is not None
        is_full = free_bytes < self.limits.min_free_bytes
        self._disk_full = (
            DiskFull(f"the disk is full: {max(0, free_bytes)} bytes are free") if is_full else None
        )
        if is_full and not was_full:
            log.warning("journal.disk_full", extra={"free_bytes": free_bytes})
        elif was_full and not is_full:
            log.info("journal.resumed", extra={"free_bytes": free_bytes})
            self._files.prepare_spare()
        self._decide()

    # -- ends ------------------------------------------------------------------------------

    def fail(self, error: int) -> None:
        """Fail all waiting callbacks, and refuse every later append."""
        reason = os.strerror(error) if error else "cannot open a journal file"
        failure = StorageFailed(f"the journal could not be written: {reason}")
        log.critical("journal.failed", extra={"errno": error, "reason": reason})
        self.buffer.refusal = self._failure = failure
        cycle = self.cycle
        busy = [] if cycle.busy is None else [cycle.busy]
        windows = (*busy, *self._queue, self.buffer.window)
        callbacks = [callback for window in windows for callback in window.callbacks]
        cycle.busy = None
        cycle.is_stopped = True
        self._queue.clear()
        self.queued = 0
        for window in (*busy, self.buffer.window):
            window.callbacks = []
        self.on_failed(failure)
        for callback in callbacks:
            _run_callback(callback, failure)

    def close(self) -> None:
        """Write what was added, and a last frame that marks all of it as durable; then close."""
        cycle = self.cycle
        if cycle.is_closing:
            return
        cycle.is_closing = cycle.is_stopped = True
        result = self._committer.close()
        self._files.stop_preparing()
        if self._failure is None and result is not None:
            cycle.finish_commit(result)
        while self._write_now(cycle.next_window()):
            pass
        if cycle.is_dirty:
            self._write_now(Window(BLOCK), CLEAN)
        if self._failure is None:
            self._failure = _Closed("the log is closed")
            self._decide()
        if cycle.file is not None:
            cycle.file.file.close()
        self._files.close()

    def _write_now(self, window: Window | None, flags: int = 0) -> bool:
        """Commit a window synchronously; for `close`."""
        if window is None or self._failure is not None:
            return False
        cycle = self.cycle
        cycle.busy = window
        try:
            frame = cycle.prepare(window, flags)
        except OSError as error:
            self.fail(error.errno or 0)
            return False
        file: JournalFile | None = cycle.file
        assert file is not None
        cycle.finish_commit(self._committer.write_last(file.file, frame, file.position))
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
