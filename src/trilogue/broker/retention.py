"""Which messages have had their time: new start offsets for partitions, decided from extents alone.

A partition loses whole extents (its runs of entries in segments), the oldest first, as long as
their newest message is older than the topic's retention, or as long as the rest is still no smaller
than `retention.bytes`. What is still in the journal counts for the size and stays. By default the
time of the append counts; an explicit `retention.ms` counts what the records say, and an extent
whose records say nothing falls back to the append.

Looking up one partition's extents has its price, in time and memory, and mostly nothing is due. So
the segments are gone through first, by their columns: a segment in which everything is young enough
costs two passes in C, and only partitions that may lose something are looked up.

Who carries it out records the starts in meta first (`PutPartitionState`) and tells the log then: a
start that was shown to a reader must not move back by a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

from trilogue.broker.settings import FOREVER_MS, UNLIMITED_BYTES, TopicSettings
from trilogue.log.errors import CorruptLog

if TYPE_CHECKING:
    from trilogue.broker.partition import Partition
    from trilogue.broker.topic import Topic
    from trilogue.log.extents import Extent
    from trilogue.log.segment_info import SegmentInfo

TOPICS_A_STEP: Final = 2_000
PLACES_A_STEP: Final = 5_000
EXTENTS_A_STEP: Final = 1_000  # each takes two microseconds or three
LOOKUP: Final = 20  # extents' worth: to find where a partition's extents are


class Topics(Protocol):
    """What a plan needs of the cluster."""

    def __iter__(self) -> Iterator[Topic]:
        """Go through all topics."""

    def find_partition(self, partition_id: int) -> Partition | None:
        """Return a partition that exists."""


def plan_retention(
    cluster: Topics, segments: Iterable[SegmentInfo], now_ms: int
) -> Iterator[dict[int, int]]:
    """Yield the new start offsets of partitions whose start moves, by partition id.

    In steps of a few milliseconds, many of them empty; topics and segments may come and go between.
    """
    segments, topics = list(segments), list(cluster)
    due: dict[int, None] = {}
    for some in chain(_old(cluster, topics, segments, now_ms), _large(cluster, topics, segments)):
        due.update(dict.fromkeys(some))
        yield {}
    yield from _starts(cluster, due, now_ms)


def new_start(
    extents: Sequence[Extent],
    start_offset: int,
    settings: TopicSettings,
    now_ms: int,
    *,
    tail_bytes: int = 0,
) -> int:
    """Return where a partition starts when everything that is too old or too much has gone."""
    too_much = -1
    if settings.retention_bytes != UNLIMITED_BYTES:
        too_much = sum(each.size for each in extents) + tail_bytes - settings.retention_bytes
    start = start_offset
    for extent in extents:
        if extent.size > too_much and not _is_old(
            settings, now_ms, extent.max_event_ms, extent.max_append_ms
        ):
            break
        too_much -= extent.size
        start = max(start, extent.end_offset)
    return start


def _is_old(settings: TopicSettings, now_ms: int, event_ms: int, append_ms: int) -> bool:
    if settings.retention_ms == FOREVER_MS:
        return False
    newest_ms = event_ms if settings.retention_by_record_time and event_ms >= 0 else append_ms
    return newest_ms < now_ms - settings.retention_ms


def _settings(topic: Topic) -> TopicSettings:
    return topic.partitions[0].settings  # the same for the whole topic


def _columns(
    segments: Sequence[SegmentInfo], *names: str
) -> Iterator[tuple[memoryview, tuple[memoryview, ...]]]:
    """Go through partition ids and columns of segments, piece by piece."""
    for segment in segments:
        extents = segment.partitions
        for first in range(0, len(extents), PLACES_A_STEP):
            some = slice(first, first + PLACES_A_STEP)
            yield extents.ids[some], tuple(extents.column(name)[some] for name in names)


def _old(
    cluster: Topics, topics: Sequence[Topic], segments: Sequence[SegmentInfo], now_ms: int
) -> Iterator[list[int]]:
    """Find the partitions with an extent that is too old; each list ends a step."""
    shortest_ms, by_record = now_ms, False
    for number, topic in enumerate(topics, 1):
        settings = _settings(topic)
        if settings.retention_ms != FOREVER_MS:
            shortest_ms = min(shortest_ms, settings.retention_ms)
            by_record = by_record or settings.retention_by_record_time
        if number % TOPICS_A_STEP == 0:
            yield []
    horizon_ms = now_ms - shortest_ms
    for ids, (events, appends) in _columns(segments, "max_event_ms", "max_append_ms"):
        found: list[int] = []
        if min(appends) < horizon_ms or (by_record and min(events) < horizon_ms):
            for partition_id, event_ms, append_ms in zip(ids, events, appends, strict=True):
                partition = cluster.find_partition(partition_id)
                if partition and _is_old(partition.settings, now_ms, event_ms, append_ms):
                    found.append(partition_id)
        yield found


def _large(
    cluster: Topics, topics: Sequence[Topic], segments: Sequence[SegmentInfo]
) -> Iterator[list[int]]:
    """Find the partitions that may be larger than they should; each list ends a step."""
    sizes: dict[int, int] = {}
    for number, topic in enumerate(topics, 1):
        if _settings(topic).retention_bytes != UNLIMITED_BYTES:
            sizes |= dict.fromkeys((each.partition_id for each in topic.partitions), 0)
        if number % TOPICS_A_STEP == 0:
            yield []
    if not sizes:
        return
    for ids, (here,) in _columns(segments, "size"):
        for partition_id, size in zip(ids, here, strict=True):
            if partition_id in sizes:
                sizes[partition_id] += size
        yield []
    found: list[int] = []
    for partition_id, size in sizes.items():
        partition = cluster.find_partition(partition_id)
        if partition and size + partition.log.tail_bytes > partition.settings.retention_bytes:
            found.append(partition_id)
    yield found


def extents_of(partition: Partition) -> list[Extent]:
    """Look up where a partition's entries are; nowhere if segments contradict each other.

    Meta is damaged then. Reads of this partition say so; others must not suffer.
    """
    try:
        return partition.log.extents
    except CorruptLog:
        return []


def _starts(cluster: Topics, partition_ids: Iterable[int], now_ms: int) -> Iterator[dict[int, int]]:
    """Look these up; a partition may be in one segment or in hundreds."""
    starts: dict[int, int] = {}
    looked_at = 0
    for partition_id in partition_ids:
        partition = cluster.find_partition(partition_id)
        if partition is None:  # deleted meanwhile
            continue
        log, extents = partition.log, extents_of(partition)
        start = new_start(
            extents, log.start_offset, partition.settings, now_ms, tail_bytes=log.tail_bytes
        )
        if start > log.start_offset:
            starts[partition_id] = start
        looked_at += LOOKUP + len(extents)
        if looked_at >= EXTENTS_A_STEP:
            yield starts
            starts, looked_at = {}, 0
    yield starts
