"""Limits the rate of file jobs, and syncs at intervals, so that they do not delay the journal.

A running job can be switched to full speed (`hurry`): its rate may become too slow for a caller
that waits for it. A process runs one job at a time, so one flag is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trilogue.log.files import File
from trilogue.log.segments.segment import SegmentHeader, SegmentWriter

SYNC_SIZE: Final = 8 << 20  # a paced job syncs this often, so that no burst delays the journal


STEP_S: Final = 0.1  # longest sleep before `hurry` is checked again


class _Haste:
    """A flag that a signal handler may set.

    `threading.Event` takes a lock: a signal that interrupts the handler of another would wait for
    itself.
    """

    is_set = False


def hurry() -> None:
    """Run the current job at full speed until `calm` is called."""
    _Haste.is_set = True


def calm() -> None:
    """Make the next job keep its rate."""
    _Haste.is_set = False


class Pace:
    """Sleeps so that a job keeps to a rate."""

    __slots__ = ("_bytes_per_second", "_done", "_monotonic", "_sleep", "_start")

    def __init__(
        self,
        bytes_per_second: int | None,
        monotonic: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._start = monotonic()
        self._done = 0

    @property
    def has_rate(self) -> bool:
        """Whether there is a rate to keep to."""
        return bool(self._bytes_per_second)

    def __call__(self, size: int) -> None:
        """Count written bytes, and wait until that many are due."""
        if not self._bytes_per_second or _Haste.is_set:
            return
        self._done += size
        early = self._start + self._done / self._bytes_per_second - self._monotonic()
        while early > 0 and not _Haste.is_set:
            self._sleep(min(early, STEP_S))
            early -= STEP_S


def smoothly(file: File, pace: Callable[[int], None] = lambda _: None) -> Callable[[int], None]:
    """Sync at intervals while writing at a pace, so that no burst delays the journal's commits."""
    unsynced = 0

    def on_write(size: int) -> None:
        nonlocal unsynced
        unsynced += size
        if unsynced >= SYNC_SIZE:
            unsynced = 0
            file.sync()
        pace(size)

    return on_write


def paced_writer(file: File, header: SegmentHeader, pace: Pace) -> SegmentWriter:
    """Begin a segment; with a rate, it is written in small pieces and synced at intervals."""
    on_write = smoothly(file, pace) if pace.has_rate else pace
    return SegmentWriter(file, header, on_write, gently=pace.has_rate)
