"""Counts of messages and bytes, and their rates over the last minute."""

from __future__ import annotations

from typing import Final

PERIOD_S: Final = 60.0


class TrafficCounter:
    """What was counted in all, and how much of it a second.

    The rate is that of the last period that is complete, or of the present one before. Times are
    seconds of a monotonic clock.
    """

    __slots__ = (
        "_began_s",
        "_period_messages",
        "_period_size",
        "_rate",
        "messages",
        "size",
    )

    def __init__(self, now_s: float) -> None:
        self.messages = 0
        self.size = 0  # bytes
        self._began_s = now_s
        self._period_messages = self._period_size = 0
        self._rate: tuple[float, float] | None = None  # of the last complete period

    def count(self, messages: int, size: int, now_s: float) -> None:
        """Count messages with this many bytes together."""
        if now_s - self._began_s >= PERIOD_S:
            self._begin_period(now_s)
        self.messages += messages
        self.size += size
        self._period_messages += messages
        self._period_size += size

    def rates(self, now_s: float) -> tuple[float, float]:
        """Return messages and bytes a second."""
        if now_s - self._began_s >= PERIOD_S:
            self._begin_period(now_s)
        if self._rate is not None:
            return self._rate
        seconds = max(1.0, now_s - self._began_s)
        return self._period_messages / seconds, self._period_size / seconds

    def _begin_period(self, now_s: float) -> None:
        seconds = now_s - self._began_s
        if seconds >= 2 * PERIOD_S:  # nothing was counted in the last complete period
            self._rate = 0.0, 0.0
        else:
            self._rate = self._period_messages / seconds, self._period_size / seconds
        self._began_s = now_s
        self._period_messages = self._period_size = 0
