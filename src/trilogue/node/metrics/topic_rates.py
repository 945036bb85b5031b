"""Rates of counters, for dashboards that expect them from the server, as a Pulsar broker has them.

A rate is of the time since an earlier gathering, one to two minutes ago, or since the first one. So
several scrapers see the same rates; at the first gathering they are 0.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

WINDOW_S: Final = 60.0


class CounterSnapshot(NamedTuple):
    """The values of counters at a monotonic time."""

    time_s: float
    values: dict[Hashable, float]


class CounterRates:
    """The counters now, and at two gatherings before."""

    def __init__(self) -> None:
        self._old: CounterSnapshot | None = None  # what rates are relative to
        self._young: CounterSnapshot | None = None  # the next old one
        self._now: CounterSnapshot | None = None

    def begin(self, time_s: float) -> None:
        """Begin a gathering; counters that it does not name are forgotten in time."""
        last = self._now
        if last is not None:
            if self._young is None:
                self._old = self._young = last
            elif last.time_s - self._young.time_s >= WINDOW_S:
                self._old, self._young = self._young, last
        self._now = CounterSnapshot(time_s, {})

    def add(self, key: Hashable, value: float) -> float:
        """Return the rate of a counter in 1/s; 0 for one that is new or went back."""
        assert self._now is not None
        self._now.values[key] = value
        old = self._old
        if old is None or self._now.time_s <= old.time_s:
            return 0.0
        return max(0.0, value - old.values.get(key, value)) / (self._now.time_s - old.time_s)
