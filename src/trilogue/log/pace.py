"""Keeps jobs on files from getting in the way of the journal: a rate, and syncs now and then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trilogue.log.files import File

SYNC_SIZE: Final = 8 << 20  # a paced job syncs this often, so that no burst meets the journal


class Pace:
    """Sleeps so that work keeps to a rate."""

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

    def __call__(self, size: int) -> None:
        """Count bytes that were written, and wait until that many are due."""
        if not self._bytes_per_second:
            return
        self._done += size
        early = self._start + self._done / self._bytes_per_second - self._monotonic()
        if early > 0:
            self._sleep(early)


def smoothly(file: File, pace: Pace) -> Callable[[int], None]:
    """Sync now and then while writing at a pace, so that no burst meets the journal's commits."""
    unsynced = 0

    def on_write(size: int) -> None:
        nonlocal unsynced
        unsynced += size
        if unsynced >= SYNC_SIZE:
            unsynced = 0
            file.sync()
        pace(size)

    return on_write
