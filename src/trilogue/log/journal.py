"""The journal: what many partitions append at once becomes durable by one write.

While one window commits the next one fills, and the completion of the first starts the second: no
timer decides, a lonely entry goes at once and a crowd shares. Only entries that nobody waits for
(`patient`, of topics that are acknowledged from memory) may lie in a window for `interval_s`; it
goes earlier when it is full or when somebody waits for it. When a window has become durable, in
this order and in one callback: the next commit is started; the partitions' high watermarks move and
their readers are told; whoever called `on_commit` is told; if the file is full it is sealed and
`on_sealed` runs. So what `on_sealed` sees is the state after the file's last frame and before any
later one: the cut of a flush.

An error is final. Nothing is written again, whoever waits gets `StorageFailed`, everything after is
refused with it, `on_failed` runs, and the process is expected to end.

    add_entry, add_fact --> filling --> queue (full ones) --> busy --> durable
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from trilogue.log.commit import commit_now
from trilogue.log.errors import DiskFull, FrameTooLarge, StorageFailed, TailFull
from trilogue.log.files import BLOCK
from trilogue.log.frame import (
    CLEAN,
    FACT,
    FRAME_HEADER,
    MAX_FACT,
)
from trilogue.log.hot import HotJournal, Waiter
from trilogue.log.journal_files import JournalFile, JournalFiles, SealedFile
from trilogue.log.journal_limits import JournalCounts, JournalLimits
from trilogue.log.ports import Committer, Scheduler
from trilogue.log.window import Window

__all__ = ["Journal", "JournalCounts", "JournalLimits"]

log = logging.getLogger(__name__)

SPACE_CHECK_BYTES: Final = 4 << 20
SPACE_CHECK_SECONDS: Final = 0.25
IDLE_WINDOWS: Final = 3
"""In a flood one fills, two are full and one is written; new memory would be 2,048 page faults."""


class Journal(HotJournal):
    """One stream of frames through recycled files. Lives on the loop, as all its callers do."""

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
        self.on_durable: Callable[[], None] = _nothing  # after each commit's effects
        self.refusal = None
        self.durable_through = last_sequence
        self.durable_ms = 0
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
        self._filling: Window = Window(self.limits.window_bytes)
        self._idle: list[Window] = []
        self._queue: deque[Window] = deque()
        self.queued = 0  # how many full windows wait for the disk: more comes in than is written
        self._busy: Window | None = None
        self._armed = False
        self._timed = False  # whether it goes when the time is over
        self._seal_wanted = False
        self._dirty = False  # whether a frame was written in this life
        self._closing = False
        self._failure = None
        self._disk_full: DiskFull | None = None
        self._unchecked_bytes = 0
        self._checked_at = monotonic()

    def start(self) -> None:
        """Open the first file to write and start to commit. Raises `OSError`."""
        self._check_space()
        self._file = self._files.take(self.limits.first_file_bytes)
        self._committer.start(self._done)

    # -- adding ----------------------------------------------------------------------------

    def add_fact(self, kind: int, payload: bytes, patient: bool = False) -> None:
        """Add a small fact to the window that fills. It is allowed on a full disk: it frees.

        A `patient` one, for which nobody waits, goes with whatever goes within `interval_s`.
        """
        if self._failure is not None:
            self.refuse()
        if len(self._queue) > 2 * self.limits.queued_windows:
            self.refuse()
        size = FACT.size + len(payload)
        window = self._filling
        if window.used + size > window.limit:
            window = self._turn(size, MAX_FACT + FACT.size)
        window.facts.append((kind, payload))
        window.limit -= size
        if not self._armed:
            self._arm_for(patient)

    def _wait_for(self, callback: Waiter) -> None:
        """Do what `on_commit` does, where it is not the window that fills and goes soon."""
        failure = self._failure
        if failure is not None:
            self._scheduler.call_soon(lambda: callback(failure))
        elif (window := self._filling).entry_count or window.facts:
            window.waiters.append(callback)
            if not self._armed:
                self._arm()
        elif self._queue:
            self._queue[-1].waiters.append(callback)
        elif self._busy is not None:
            self._busy.waiters.append(callback)
        else:
            self._scheduler.call_soon(lambda: callback(None))

    def refuse(self) -> None:
        """Raise why nothing can be appended now, unless the reason has gone by itself."""
        if self._disk_full and self._monotonic() - self._checked_at >= SPACE_CHECK_SECONDS:
            self._check_space()
        refusal = self.refusal
        if refusal is not None:  # a new one: an exception grows each time it is raised
            raise type(refusal)(*refusal.args)

    # -- state -----------------------------------------------------------------------------

    @property
    def last_sequence(self) -> int:
        """Of the newest frame that was sent to the disk, durable or not."""
        return self._last_sequence

    @property
    def unsealed_entries(self) -> int:
        """Entries in the current file."""
        return 0 if self._file is None else self._file.entry_count

    @property
    def unsealed_since_ms(self) -> int | None:
        """Append time of the first frame in the current file; None while it is empty."""
        file = self._file
        return None if file is None or file.is_empty else file.first_append_ms

    # -- committing ------------------------------------------------------------------------

    def _arm_for(self, patient: bool) -> None:
        if not patient:
            self._arm()
        elif not self._timed:
            self._timed = True
            self._scheduler.call_later(self.limits.interval_s, self._time_over)

    def _arm(self) -> None:
        self._armed = True
        if self._busy is None:
            self._scheduler.call_soon(self._kick)

    def _time_over(self) -> None:
        """Patient entries have waited long enough; perhaps they went with others meanwhile."""
        self._timed = False
        if not self._armed and not self._filling.is_empty:
            self._arm()

    def _turn(self, size: int, most: int) -> Window:
        """Put a new window in the place of one that has no room for `size` more bytes."""
        if size > most:
            raise FrameTooLarge(f"{size} bytes exceed {most}, the most a frame can take")
        window = self._filling
        if window.is_empty:
            self._idle.append(window)
        else:
            window.close()
            window.sum_up()
            self._queue.append(window)
            self._decide()
        if FRAME_HEADER + size > self.limits.window_bytes:
            self._filling = Window(FRAME_HEADER + size)
        else:
            self._filling = self._fresh()
        if self._busy is None:
            self._kick()
        if self._failure is not None:
            self.refuse()
        return self._filling

    def _decide(self) -> None:
        """Say whether entries are refused, and with what; after each change of the queue."""
        self.queued = len(self._queue)
        if self._failure is not None:
            self.refusal = self._failure
        elif self._disk_full is not None:
            self.refusal = self._disk_full
        elif len(self._queue) >= self.limits.queued_windows:
            self.refusal = TailFull("the disk does not keep up")
        else:
            self.refusal = None

    def _fresh(self) -> Window:
        return self._idle.pop() if self._idle else Window(self.limits.window_bytes)

    def _next_window(self) -> Window | None:
        """Take the oldest window that has to go; the filling one is replaced."""
        if self._queue:
            window = self._queue.popleft()
            self._decide()
            return window
        window = self._filling
        if window.is_empty or not (self._armed or self._closing):
            return None
        window.close()
        self._filling = self._fresh()
        self._armed = False
        return window

    def _kick(self) -> None:
        if self._busy is not None or self._failure is not None or self._closing:
            return
        window = self._next_window()
        if window is None:
            self._armed = False
            return
        self._busy = window
        try:
            file, frame = self._prepare(window, 0)
        except OSError as error:
            self._fail(error.errno or 0)
            return
        self._committer.submit(file.file, frame, file.position)

    def _prepare(self, window: Window, flags: int) -> tuple[JournalFile, memoryview]:
        """Make the window the next frame of the current file, which is opened if need be."""
        file = self._file
        if file is None:
            self.counts.spares_late += not self._files.is_ready
            file = self._file = self._files.take()
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
        """The commit of the busy window ended."""
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
            self._check_space()

    def _apply(self, window: Window) -> None:
        """Let everything that waited for this window happen, then use it again."""
        self.durable_ms = window.append_time_ms
        window.advance()
        for callback in window.waiters:
            try:  # as `_tell` does
                callback(None)
            except Exception:
                log.exception("journal.callback_failed")
        if len(window.view) == self._filling_size and len(self._idle) < IDLE_WINDOWS:
            window.reset()
            self._idle.append(window)

    @property
    def _filling_size(self) -> int:
        return BLOCK * -(-self.limits.window_bytes // BLOCK)

    # -- files -----------------------------------------------------------------------------

    def seal(self, now_ms: int | None = None) -> None:
        """End the current file after what is being written; with a time, only if it is old.

        It goes on where a full disk has no room for the next one: reading need not end with it.
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
            # past what was filled with zeros commits are slow: change as soon as that helps
            or (position >= max(file.prepared, limits.first_file_bytes) and self._files.is_ready)
        )

    def _seal(self, file: JournalFile) -> None:
        self.counts.files_sealed += 1
        self.on_sealed(file.seal())

    def _check_space(self) -> None:
        self._unchecked_bytes = 0
        self._checked_at = self._monotonic()
        free_bytes = self._free_bytes()
        was_full = self._disk_full is not None
        is_full = free_bytes < self.limits.min_free_bytes
        self._disk_full = DiskFull(f"only {free_bytes} bytes are free") if is_full else None
        if is_full and not was_full:
            log.warning("journal.disk_full", extra={"free_bytes": free_bytes})
        elif was_full and not is_full:
            log.info("journal.resumed", extra={"free_bytes": free_bytes})
            self._files.prepare_spare()
        self._decide()

    # -- ends ------------------------------------------------------------------------------

    def _fail(self, error: int) -> None:
        """Nothing is acknowledged from here on."""
        reason = os.strerror(error) if error else "cannot open a journal file"
        failure = StorageFailed(f"the journal could not be written: {reason}")
        log.critical("journal.failed", extra={"errno": error, "reason": reason})
        self.refusal = self._failure = failure
        busy = [] if self._busy is None else [self._busy]
        waiters = [w for window in (*busy, *self._queue, self._filling) for w in window.waiters]
        self._busy = None
        self._queue.clear()
        self.queued = 0
        for window in (*busy, self._filling):
            window.waiters = []
        for callback in waiters:
            _tell(callback, failure)
        self.on_failed(failure)

    def close(self) -> None:
        """Write what was added, and a last frame that says it was all durable; then let go."""
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
        """Commit a window here and now; for `close`."""
        if window is None or self._failure is not None:
            return False
        self._busy = window
        try:
            file, frame = self._prepare(window, flags)
        except OSError as error:
            self._fail(error.errno or 0)
            return False
        self._done(commit_now(file.file, frame, file.position))
        return True


class _Closed(StorageFailed):
    """The log was closed in order; nothing is wrong, but nothing is taken any more."""


def _tell(callback: Waiter, outcome: StorageFailed | None) -> None:
    try:
        callback(outcome)
    except Exception:  # one caller's mistake must not keep the others waiting
        log.exception("journal.callback_failed")


def _ignore(_: object) -> None:
    pass


def _nothing() -> None:
    pass
