"""Which messages have had their time: new start offsets for partitions, decided from extents alone.

A partition loses whole extents (its runs of entries in segments), the oldest first, as long as
their newest message is older than the topic's retention. What is still in the journal stays. By
default the time of the append counts; an explicit `retention.ms` counts what the records say, and
an extent whose records say nothing falls back to the append.

Who carries it out records the starts in meta first (`PutPartitionState`) and tells the log then: a
start that was shown to a reader must not move back by a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trilogue.broker.settings import FOREVER_MS, TopicSettings
from trilogue.broker.topic import Topic
from trilogue.log.extents import Extent


def plan_retention(topics: Iterable[Topic], now_ms: int) -> dict[int, int]:
    """Return the new start offset of each partition whose start moves, by partition id.

    Costs a look at each partition, so a caller with many topics hands them in portions.
    """
    starts: dict[int, int] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.settings.retention_ms == FOREVER_MS:
                break  # the same for the whole topic
            log = partition.log
            start = new_start(log.extents, log.start_offset, partition.settings, now_ms)
            if start > log.start_offset:
                starts[partition.partition_id] = start
    return starts


def new_start(
    extents: Sequence[Extent], start_offset: int, settings: TopicSettings, now_ms: int
) -> int:
    """Return where a partition starts when everything whose time is over has gone."""
    if settings.retention_ms == FOREVER_MS:
        return start_offset
    oldest_ms = now_ms - settings.retention_ms
    start = start_offset
    for extent in extents:
        newest_ms = extent.max_append_ms
        if settings.retention_by_record_time and extent.max_event_ms >= 0:
            newest_ms = extent.max_event_ms
        if newest_ms >= oldest_ms:
            break
        start = max(start, extent.end_offset)
    return start
