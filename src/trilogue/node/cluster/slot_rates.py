"""Measures how many bytes each slot of this node takes, for rebalances."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from math import exp
from typing import Final

from trilogue.broker.topics.cluster import Cluster

MEASURE_S: Final = 10.0
MEMORY_S: Final = 300.0  # a rate is an average over about this long
PARTITIONS_A_STEP: Final = 1_000


class SlotRates:
    """Bytes/s by slot. Appending counts nothing: a reading adds how far the tails have moved."""

    def __init__(self, cluster: Cluster, monotonic: Callable[[], float]) -> None:
        self._cluster = cluster
        self._monotonic = monotonic
        self._read_s: float | None = None
        self._sizes: dict[int, int] = {}  # partition id -> bytes appended, at the last reading
        self._rates: dict[int, float] = {}

    @property
    def is_due(self) -> bool:
        """Whether the last reading is old enough."""
        return self._read_s is None or self._monotonic() - self._read_s >= MEASURE_S

    async def read(self) -> dict[int, float]:
        """Return bytes/s of each slot that this node serves; none at the first reading."""
        now, before = self._monotonic(), self._sizes
        taken: Counter[int] = Counter()
        sizes: dict[int, int] = {}
        ownership = self._cluster.ownership
        for topic in list(self._cluster):
            for partition in topic.local_partitions:
                partition_id = partition.partition_id
                sizes[partition_id] = size = partition.log.appended_bytes
                if partition_id in before:
                    slot = ownership.partition_slot(partition_id)
                    taken[slot] += max(0, size - before[partition_id])
                if len(sizes) % PARTITIONS_A_STEP == 0:
                    await asyncio.sleep(0)
        since, self._read_s, self._sizes = self._read_s, now, sizes
        if since is None:
            return {}
        passed = max(now - since, 1e-9)
        kept = exp(-passed / MEMORY_S)
        self._rates = {
            slot: self._rates[slot] * kept + taken[slot] / passed * (1 - kept)
            if slot in self._rates
            else taken[slot] / passed
            for slot in ownership.served_slots()
        }
        return self._rates
