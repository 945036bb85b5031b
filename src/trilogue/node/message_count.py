"""How many messages were appended since the start, without counting any of them.

The hot path keeps the end of each partition anyway. Whoever asks adds up how far the ends have
moved since the last time; what a partition got right before it was deleted is not seen.
"""

from __future__ import annotations

from trilogue.broker.cluster import Cluster


class MessageCount:
    """A counter that is read by looking at all partitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._total = 0
        self._ends: dict[int, int] = {}  # partition id -> end at the last look
        self.look()
        self._total = 0  # what was there before the start does not count

    def look(self) -> int:
        """Count up to now."""
        before = self._ends
        after: dict[int, int] = {}
        for topic in self._cluster:
            for partition in topic.partitions:
                end = partition.log.end_offset
                after[partition.partition_id] = end
                self._total += end - before.get(partition.partition_id, 0)
        self._ends = after
        return self._total
