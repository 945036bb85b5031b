"""A histogram of plain integers, cheap enough to be filled as events happen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Buckets:
    """How many values were at or below each bound: a bisect and an addition for each."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Counts at or below each bound, the last bound being infinite, as Prometheus wants it."""
        rows: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            so_far += count
            rows.append((repr(bound), so_far))
        rows.append(("+Inf", so_far + self.counts[-1]))
        return rows
