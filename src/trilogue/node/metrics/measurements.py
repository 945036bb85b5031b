"""Measurements that only the metrics page reads: the loop's lag, a message count."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable

from trilogue.broker.topics.cluster import Cluster

LAG_PERIOD_S = 0.1
LAG_SAMPLES = 6_000


class LoopLag:
    """How late a timer of the event loop fires, every 100 ms over the last ten minutes.

    That is how long any other callback waited at that moment. It costs ten wake-ups a second.
    `monotonic` is not the loop's clock: uvloop's stands still while callbacks run.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        every_s: float = LAG_PERIOD_S,
        kept: int = LAG_SAMPLES,
    ) -> None:
        self._monotonic = monotonic
        self._every_s = every_s
        self._kept = kept
        self._late = array("d")
        self._next = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer in the running loop."""
        loop = asyncio.get_running_loop()
        self._due = self._monotonic() + self._every_s
        self._timer = loop.call_later(self._every_s, self._tick, loop)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def record(self, late_s: float) -> None:
        """Keep one measurement in seconds; it replaces the oldest when there are 6,000."""
        if len(self._late) < self._kept:
            self._late.append(late_s)
        else:
            self._late[self._next] = late_s
            self._next = (self._next + 1) % self._kept

    def quantile_s(self, share: float) -> float:
        """Return the lag that `share` of the measurements do not exceed, in seconds; 0 if none."""
        if not self._late:
            return 0.0
        ordered = sorted(self._late)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._monotonic()
        self.record(max(0.0, now - self._due))
        self._due = now + self._every_s
        self._timer = loop.call_later(self._every_s, self._tick, loop)


class MessageCount:
    """The number of messages appended since the start.

    Appending counts nothing: a reading adds how far the end offsets have moved since the last one.
    Messages of a partition that was deleted since then are not seen.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._total = 0
        self._ends: dict[int, int] = {}  # partition id -> end offset at the last reading
        self.read()
        self._total = 0  # messages from before the start do not count

    def read(self) -> int:
        """Return the number of messages up to now."""
        before = self._ends
        after: dict[int, int] = {}
        for topic in self._cluster:
            for partition in topic.local_partitions:
                end = partition.log.end_offset
                after[partition.partition_id] = end
                self._total += end - before.get(partition.partition_id, 0)
        self._ends = after
        return self._total
