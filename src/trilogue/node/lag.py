"""How late the event loop is: the one number that says whether anything took the loop for long.

A timer is set for every 100 ms; what it is late by is how long everybody waited who came in that
moment. The last ten minutes are kept; the p99 of them is the metric.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable

EVERY_S = 0.1
KEPT = 6_000


class Lag:
    """Measures a running loop; costs ten wake-ups a second.

    `monotonic` is a clock of its own: a loop's may stand still while its callbacks run (uvloop's).
    """

    def __init__(
        self, monotonic: Callable[[], float], *, every_s: float = EVERY_S, kept: int = KEPT
    ) -> None:
        self._monotonic = monotonic
        self._every_s = every_s
        self._kept = kept
        self._late = array("d")
        self._next = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; needs a running loop."""
        loop = asyncio.get_running_loop()
        self._due = self._monotonic() + self._every_s
        self._timer = loop.call_later(self._every_s, self._tick, loop)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()

    def record(self, late_s: float) -> None:
        """Keep one measurement, over the oldest one when there are many."""
        if len(self._late) < self._kept:
            self._late.append(late_s)
        else:
            self._late[self._next] = late_s
            self._next = (self._next + 1) % self._kept

    def quantile_s(self, share: float) -> float:
        """The lag that `share` of the measurements do not exceed; 0 before there are any."""
        if not self._late:
            return 0.0
        ordered = sorted(self._late)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._monotonic()
        self.record(max(0.0, now - self._due))
        self._due = now + self._every_s
        self._timer = loop.call_later(self._every_s, self._tick, loop)
