"""Planning: which offsets a batch or micro-batch covers, and how they are shared among tasks.

Plain functions of plain dicts. An offset map is `{(topic, partition): offset}`; Spark keeps it as
JSON `{"topic": {"0": 23}}` in checkpoints, the same form that its Kafka connector writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trilogue.spark.options import Bounds

Partition = tuple[str, int]
Offsets = dict[Partition, int]


class Range(NamedTuple):
    """Offsets [start, end) of one partition, read by one task."""

    topic: str
    partition: int
    start: int
    end: int


def to_json(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """The checkpoint form."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = int(offset)
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Back from the checkpoint form."""
    return {
        (topic, int(partition)): int(offset)
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }


def wanted(bounds: Bounds, partitions: Iterable[Partition], default: int) -> Offsets:
    """What the options say for each partition: an offset, or -1/-2 still to be asked for."""
    if isinstance(bounds, int):
        return dict.fromkeys(partitions, bounds)
    return {
        (topic, partition): bounds.get(topic, {}).get(partition, default)
        for topic, partition in partitions
    }


def admit(start: Offsets, latest: Offsets, rows: int) -> Offsets:
    """Move from `start` towards `latest` by about `rows` offsets, shared in proportion to lag.

    Every partition with lag moves by at least one offset, so that none starves, and none moves
    beyond its end.
    """
    lags = {key: max(0, end - start.get(key, 0)) for key, end in latest.items()}
    total = sum(lags.values())
    if total <= rows:
        return dict(latest)
    return {
        key: start.get(key, 0) + (min(lag, max(1, rows * lag // total)) if lag else 0)
        for key, lag in lags.items()
    }


def ranges(start: Offsets, end: Offsets, min_partitions: int | None = None) -> list[Range]:
    """Non-empty ranges, long ones split evenly until there are `min_partitions` of them."""
    whole = [
        Range(topic, partition, start.get((topic, partition), 0), last)
        for (topic, partition), last in sorted(end.items())
        if last > start.get((topic, partition), 0)
    ]
    if min_partitions is None or not whole or len(whole) >= min_partitions:
        return whole
    total = sum(one.end - one.start for one in whole)
    pieces: list[Range] = []
    for one in whole:
        length = one.end - one.start
        count = min(length, max(1, -(-min_partitions * length // total)))
        cuts = [one.start + length * step // count for step in range(count + 1)]
        pieces += [one._replace(start=low, end=high) for low, high in itertools.pairwise(cuts)]
    return pieces
