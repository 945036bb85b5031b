"""A clock that tests move: the wall clock of a broker, and the timers of its event loop.

A broker reads two clocks: milliseconds since 1970 (retention, message times, expiry) and the
monotonic clock of its loop (sessions of group members, redelivery, periodic checks). Both run as
usual, and jump together by what a test advances them.
"""

from __future__ import annotations

import asyncio
import time


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be advanced."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        super().__init__()

    def time(self) -> float:
        """Return the monotonic time in s, and what it was advanced by."""
        return super().time() + self.ahead_s


class Clock:
    """The clock of a broker; it also keeps its time while the broker is stopped."""

    def __init__(self) -> None:
        self._ahead_s = 0.0  # of the event loop
        self._wall_ahead_s = 0.0
        self._loop: ClockLoop | None = None

    def now_ms(self) -> int:
        """Return milliseconds since 1970, as the broker has them."""
        return (time.time_ns() + round(self._wall_ahead_s * 1e9)) // 1_000_000

    def advance(self, seconds: float) -> None:
        """Let time pass at once: what is due by then happens. ValueError for a negative time."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._ahead_s += seconds
        self._wall_ahead_s += seconds
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._move)

    def reset(self) -> None:
        """Set the wall clock to that of the machine. The loop's clock never goes back."""
        self._wall_ahead_s = 0.0

    def attach(self, loop: ClockLoop | None) -> None:
        """Move this event loop from now on, or none."""
        self._loop = loop
        self._move()

    def _move(self) -> None:
        if self._loop is not None:
            self._loop.ahead_s = self._ahead_s
