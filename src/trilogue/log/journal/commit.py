"""The commit thread: it writes and syncs (fsync) a window in one system call, and reports that.

Compiled, the thread never takes the GIL in its whole life: the loop leaves the job in plain C
fields and wakes it through one eventfd, the thread writes and wakes the loop through another. So a
commit neither waits for Python nor makes Python wait. Uncompiled it is an ordinary thread, a queue
and `call_soon_threadsafe`, about a fifth slower. Both write with `pwritev2(RWF_DSYNC)`; there is
one job at a time, which is why no field needs a lock.

    loop:    fields, jobs += 1                                    read done, on_done(errno)
                        |                                              ^
    thread:             +--> read jobs, pwritev2(RWF_DSYNC), done += 1 +
"""

# ruff: noqa: F821 - the functions written in C come from commit.pxd

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

import cython

from trilogue.log.files import File
from trilogue.log.journal.time_slice import shorten_time_slice
from trilogue.log.ports import Committer, Scheduler

if TYPE_CHECKING:  # declared in C, in commit.pxd
    address_of: Callable[[memoryview], object]
    write_all: Callable[[int, object, int, int, int, object], int]
    wait_for: Callable[[int], bool]
    signal_to: Callable[[int], None]

log = logging.getLogger(__name__)


def is_compiled() -> bool:
    """Whether this module was compiled; `trilogue doctor` shows it."""
    return bool(cython.compiled)


def start_thread(run: Callable[[], None]) -> threading.Thread:
    """Start the thread that runs as soon as it has something to write (time_slice.py)."""
    thread = threading.Thread(target=run, name="journal commit", daemon=True)
    thread.start()
    assert thread.native_id is not None
    shorten_time_slice(thread.native_id)
    return thread


def thread_committer(scheduler: Scheduler, *, is_durable: bool = True) -> Committer:
    """Create the fastest committer available: without the GIL when compiled.

    Without `is_durable` it writes and does not sync: for a file that nothing durable depends on.
    """
    flags = os.RWF_DSYNC if is_durable else 0
    kind = NativeCommitter if cython.compiled else PythonCommitter
    return kind(scheduler, flags)


@cython.cclass
class NativeCommitter:
    """Commits in a thread that runs without the GIL. Works compiled only, on real files only."""

    def __init__(self, scheduler: Scheduler, flags: int = os.RWF_DSYNC) -> None:
        self._scheduler = scheduler
        self._flags = flags
        self._jobs = os.eventfd(0, os.EFD_CLOEXEC)
        self._done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._size = 0
        self._stopping = False
        self._busy = False
        self._data: memoryview | None = None
        self._file: File | None = None  # that `_fd` is of
        self._thread: threading.Thread | None = None

    def start(self, on_done: Callable[[int], None]) -> None:
        """Start the thread and watch its eventfd."""
        self._on_done = on_done
        self._scheduler.add_reader(self._done, self._deliver)
        self._thread = start_thread(self._run)

    def submit(self, file: File, data: memoryview, offset: int) -> None:
        """Store the job in the thread's fields and wake the thread."""
        if self._busy or self._stopping:
            raise RuntimeError("one commit at a time")
        self._base = address_of(data)
        self._size = len(data)
        self._data = data  # keeps the memory alive until the thread is done with it
        if file is not self._file:
            self._file = file
            self._fd = file.fileno()
            self._length = 0  # not known
        self._offset = offset
        self._busy = True
        signal_to(self._jobs)

    def _run(self) -> None:
        with cython.nogil:
            while wait_for(self._jobs):
                if self._size > 0:
                    self._result = write_all(
                        self._fd,
                        self._base,
                        self._size,
                        self._offset,
                        self._flags,
                        cython.address(self._length),
                    )
                    self._size = 0
                    signal_to(self._done)
                if self._stopping:
                    break

    def _deliver(self) -> None:
        if wait_for(self._done) and self._busy:
            self._busy = False
            self._data = None
            self._on_done(self._result)

    def close(self) -> int | None:
        """Let the thread finish the write under way, then end it."""
        if self._thread is None:
            return None
        self._stopping = True
        signal_to(self._jobs)
        self._thread.join()
        self._thread = None
        self._scheduler.remove_reader(self._done)
        os.close(self._jobs)
        os.close(self._done)
        self._data = None
        if not self._busy:
            return None
        self._busy = False
        result: int = self._result
        return result

    def write_last(self, file: File, data: memoryview, offset: int) -> int:
        """Write a window after `close`, and return 0 or an errno."""
        return commit_now(file, data, offset, self._flags)


class PythonCommitter:
    """Commits in an ordinary thread, through the `File` port: works everywhere."""

    def __init__(self, scheduler: Scheduler, flags: int = os.RWF_DSYNC) -> None:
        self._scheduler = scheduler
        self._flags = flags
        self._jobs: SimpleQueue[tuple[File, memoryview, int] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._result = 0

    def start(self, on_done: Callable[[int], None]) -> None:
        """Start the thread."""
        self._on_done = on_done
        self._thread = start_thread(self._run)

    def submit(self, file: File, data: memoryview, offset: int) -> None:
        """Queue the job for the thread."""
        if self._busy:
            raise RuntimeError("one commit at a time")
        self._busy = True
        self._jobs.put((file, data, offset))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._result = commit_now(*job, self._flags)
            job = None  # the window belongs to the loop again
            self._scheduler.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        if self._busy:
            self._busy = False
            self._on_done(self._result)

    def close(self) -> int | None:
        """Let the thread finish the write under way, then end it."""
        if self._thread is None:
            return None
        self._jobs.put(None)
        self._thread.join()
        self._thread = None
        if not self._busy:
            return None
        self._busy = False
        return self._result

    def write_last(self, file: File, data: memoryview, offset: int) -> int:
        """Write a window after `close`, and return 0 or an errno."""
        return commit_now(file, data, offset, self._flags)


class InlineCommitter:
    """Commits in `submit` and reports in the next loop iteration: no threads, for tests."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._pending: int | None = None

    def start(self, on_done: Callable[[int], None]) -> None:
        """Store the callback."""
        self._on_done = on_done

    def submit(self, file: File, data: memoryview, offset: int) -> None:
        """Write now and schedule the report."""
        if self._pending is not None:
            raise RuntimeError("one commit at a time")
        self._pending = commit_now(file, data, offset)
        self._scheduler.call_soon(self._deliver)

    def _deliver(self) -> None:
        result, self._pending = self._pending, None
        if result is not None:
            self._on_done(result)

    def close(self) -> int | None:
        """Return the result that has not been reported yet, if any."""
        result, self._pending = self._pending, None
        return result

    def write_last(self, file: File, data: memoryview, offset: int) -> int:
        """Write a window after `close`, and return 0 or an errno."""
        return commit_now(file, data, offset)


def commit_now(file: File, data: memoryview, offset: int, flags: int = os.RWF_DSYNC) -> int:
    """Write through the port and return 0 or the errno of the failure."""
    try:
        (file.pwrite_durable if flags else file.pwrite)(data, offset)
    except OSError as error:
        return error.errno or errno.EIO
    except Exception:  # after any error the window is not known to be durable
        log.exception("commit.failed", extra={"path": str(file.path), "offset": offset})
        return errno.EIO
    return 0
