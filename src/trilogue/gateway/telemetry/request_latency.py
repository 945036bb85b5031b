# cython: annotation_typing=False, wraparound=True
"""How long requests take, from the handler's start to the reply, as histograms by name.

    timer = latencies.start(key)      before the handler; None: this request is not measured
    slot.timer = timer                reply_queue.py stops it when the reply leaves
    timer.stop()

The first `EXACT` requests of a name are all measured, of later ones one in `SAMPLED`, which then
counts for all of them. So a rare request is seen, and a frequent one costs an addition and a
comparison. Waits that a client requested (a fetch's `max_wait_ms`) are in its latency, as in Kafka.

Compiled (request_latency.pxd adds the types), since each commit is observed; uncompiled it is plain
Python.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import Final

EXACT: Final = 1_024
SAMPLED: Final = 16  # a power of 2
_MASK: Final = SAMPLED - 1
BOUNDS_S: Final = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    30.0,
)  # fmt: skip


class LatencyHistogram:
    """Counts of values at or below each bound; a value costs one bisection and two additions."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = BOUNDS_S) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, weight: int = 1) -> None:
        """Count one value, or so many that are like it."""
        at = bisect_left(self.bounds, value)
        self.counts[at] += weight
        self.total += value * weight

    def cumulative(self) -> list[tuple[str, float]]:
        """Return counts at or below each bound and +Inf, as Prometheus's text format has them."""
        rows: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            so_far += count
            rows.append((repr(bound), so_far))
        rows.append(("+Inf", so_far + self.counts[-1]))
        return rows


class RequestTimer:
    """The time of one request that is measured, or of several with one reply."""

    __slots__ = ("_histogram", "_monotonic", "_started_s", "weight")

    def __init__(
        self, histogram: LatencyHistogram, weight: int, monotonic: Callable[[], float]
    ) -> None:
        self._histogram = histogram
        self.weight = weight  # the requests that it counts for
        self._monotonic = monotonic
        self._started_s = monotonic()

    def stop(self, requests: int = 1) -> None:
        """Count the time since the start, for so many requests that were answered together."""
        self._histogram.observe(self._monotonic() - self._started_s, self.weight * requests)


class RequestLatencies:
    """The histograms of one gateway, by the key of a request."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.histograms: dict[Hashable, LatencyHistogram] = {}
        self._monotonic = monotonic
        self._groups = 0

    def start(self, key: Hashable, count: int = 0) -> RequestTimer | None:
        """Return a running timer if request number `count` of this key is one to measure."""
        if count < EXACT:
            weight = 1
        elif count & _MASK:
            return None
        else:
            weight = SAMPLED
        histogram = self.histograms.get(key)
        if histogram is None:
            histogram = self.histograms[key] = LatencyHistogram()
        return RequestTimer(histogram, weight, self._monotonic)

    def start_group(self, key: Hashable) -> RequestTimer | None:
        """Return the same for what one loop iteration of a connection sent, which is a group."""
        self._groups += 1
        count = self._groups
        return None if count & _MASK and count >= EXACT else self.start(key, count)
