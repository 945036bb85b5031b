"""Retention: new start offsets for partitions, decided from extents alone.

A partition loses whole extents (its runs of entries in segments), the oldest first, as long as some
rule applies. What is still in the journal counts for the size and stays. A topic has up to three
rules, and each acts as in its own system (docs/reference/retention.md):

    set by                 removes what                                         waits for acks
    the node's default     was appended so long ago (topics.retention)                yes
    retention.ms           has an older newest record; replaces the default           no
    retention.bytes        leaves a rest that is no smaller than that                 no
    a retention policy     was appended so long ago, or leaves such a rest;           yes
                           replaces the default

A rule that waits for subscriptions keeps what a durable subscription has not acked. An extent whose
records have no timestamp goes by its append. Topics that are only compacted have no rule.

Looking up one partition's extents costs time and memory, and mostly nothing is due. So the segments
are scanned first, by their columns: a segment in which everything is young enough costs two passes
in C, and only partitions that may lose something are looked up.

The caller records new starts in meta first (`PutPartitionState`), and moves the log's start then: a
start that a consumer has seen must not move back by a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from trilogue.broker.settings.topic_settings import FOREVER_MS, TopicSettings
from trilogue.broker.settings.topic_table import UNLIMITED_BYTES
from trilogue.log.errors import CorruptLog

if TYPE_CHECKING:
    from trilogue.broker.topics.partition import Partition
    from trilogue.broker.topics.policies import RetentionPolicy
    from trilogue.broker.topics.topic import Topic
    from trilogue.log.segments.extents import Extent
    from trilogue.log.segments.segment_info import SegmentInfo

TOPICS_A_STEP: Final = 2_000
PLACES_A_STEP: Final = 5_000
EXTENTS_A_STEP: Final = 1_000  # each takes two microseconds or three
LOOKUP: Final = 20  # extents' worth: to find where a partition's extents are


MINUTE_MS: Final = 60_000
MEGABYTE: Final = 1 << 20


class RetentionRule(NamedTuple):
    """How long a partition keeps its messages, or how many bytes of them."""

    keep_ms: int  # -1: for ever
    by_record_time: bool
    keep_bytes: int  # -1: no limit
    waits: bool  # for durable subscriptions


Rules = tuple[RetentionRule, ...]


@lru_cache(maxsize=1_024)
def retention_rules(settings: TopicSettings, policy: RetentionPolicy | None = None) -> Rules:
    """Return the rules of a topic from its settings and its retention policy."""
    if not settings.deletes:
        return ()
    rules: list[RetentionRule] = []
    is_set = settings.retention_by_record_time
    if is_set or policy is None:
        rules.append(
            RetentionRule(settings.retention_ms, is_set, UNLIMITED_BYTES, waits=not is_set)
        )
    if settings.retention_bytes != UNLIMITED_BYTES:
        rules.append(RetentionRule(FOREVER_MS, False, settings.retention_bytes, waits=False))
    if policy is not None:
        keep_ms = FOREVER_MS if policy.minutes < 0 else policy.minutes * MINUTE_MS
        keep_bytes = UNLIMITED_BYTES if policy.megabytes < 0 else policy.megabytes * MEGABYTE
        rules.append(RetentionRule(keep_ms, False, keep_bytes, waits=True))
    return tuple(rules)


Needed = Callable[[int], "int | None"]
"""From a partition's id to the first offset that durable subscriptions need, or None."""


def _no_subscription(_partition_id: int) -> int | None:
    return None


class Topics(Protocol):
    """What a plan needs of the cluster."""

    def __iter__(self) -> Iterator[Topic]:
        """Go through all topics."""

    def find_partition(self, partition_id: int) -> Partition | None:
        """Return a partition that exists."""


def plan_retention(
    cluster: Topics,
    segments: Iterable[SegmentInfo],
    now_ms: int,
    needed: Needed = _no_subscription,
) -> Iterator[dict[int, int]]:
    """Yield the new start offsets of partitions whose start moves, by partition id.

    In steps of a few milliseconds, many of them empty; topics and segments may come and go between.
    """
    segments, topics = list(segments), list(cluster)
    due: dict[int, None] = {}
    for some in chain(
        _old(cluster, topics, segments, now_ms, needed), _large(cluster, topics, segments)
    ):
        due.update(dict.fromkeys(some))
        yield {}
    yield from _starts(cluster, due, now_ms, needed)


def find_trimmed_start(
    partition: Partition, extents: Sequence[Extent], now_ms: int, needed: int | None
) -> int:
    """Return the start of one partition after everything that is due now is removed.

    `extents` are those of the partition, `needed` is the first offset that durable subscriptions
    need.
    """
    log = partition.log
    return find_new_start(
        extents,
        log.start_offset,
        _rules_of(partition),
        now_ms,
        tail_bytes=log.tail_bytes,
        needed=needed,
    )


def find_new_start(
    extents: Sequence[Extent],
    start_offset: int,
    rules: Rules,
    now_ms: int,
    *,
    tail_bytes: int = 0,
    needed: int | None = None,
) -> int:
    """Return the start of a partition after everything that is due is removed."""
    rest = tail_bytes
    if any(rule.keep_bytes != UNLIMITED_BYTES for rule in rules):
        rest += sum(each.size for each in extents)
    start = start_offset
    for extent in extents:
        rest -= extent.size
        is_needed = needed is not None and extent.end_offset > needed
        times = extent.max_event_ms, extent.max_append_ms
        if not any(
            _is_old(rule, now_ms, *times) or 0 <= rule.keep_bytes <= rest
            for rule in rules
            if not (is_needed and rule.waits)
        ):
            break
        start = max(start, extent.end_offset)
    return start


def _is_old(rule: RetentionRule, now_ms: int, event_ms: int, append_ms: int) -> bool:
    if rule.keep_ms == FOREVER_MS:
        return False
    newest_ms = event_ms if rule.by_record_time and event_ms >= 0 else append_ms
    return newest_ms < now_ms - rule.keep_ms


def _rules(topic: Topic) -> Rules:
    return _rules_of(topic.partitions[0])  # the same for the whole topic


def _rules_of(partition: Partition) -> Rules:
    return retention_rules(partition.settings, partition.policies.retention)


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
    cluster: Topics,
    topics: Sequence[Topic],
    segments: Sequence[SegmentInfo],
    now_ms: int,
    needed: Needed,
) -> Iterator[list[int]]:
    """Find the partitions with an extent that is too old; each list ends a step."""
    shortest_ms, by_record = now_ms, False
    for number, topic in enumerate(topics, 1):
        for rule in _rules(topic):
            if rule.keep_ms != FOREVER_MS:
                shortest_ms = min(shortest_ms, rule.keep_ms)
                by_record = by_record or rule.by_record_time
        if number % TOPICS_A_STEP == 0:
            yield []
    horizon_ms = now_ms - shortest_ms
    for ids, (events, appends) in _columns(segments, "max_event_ms", "max_append_ms"):
        found: list[int] = []
        if min(appends) < horizon_ms or (by_record and min(events) < horizon_ms):
            for partition_id, event_ms, append_ms in zip(ids, events, appends, strict=True):
                partition = cluster.find_partition(partition_id)
                if partition and _may_go(partition, now_ms, (event_ms, append_ms), needed):
                    found.append(partition_id)
        yield found


def _may_go(partition: Partition, now_ms: int, times: tuple[int, int], needed: Needed) -> bool:
    for rule in _rules_of(partition):
        if _is_old(rule, now_ms, *times):
            first = needed(partition.partition_id) if rule.waits else None
            if first is None or first > partition.log.start_offset:
                return True
    return False


def _large(
    cluster: Topics, topics: Sequence[Topic], segments: Sequence[SegmentInfo]
) -> Iterator[list[int]]:
    """Find the partitions that may be larger than they should; each list ends a step."""
    sizes: dict[int, int] = {}
    for number, topic in enumerate(topics, 1):
        if _least_bytes(_rules(topic)) != UNLIMITED_BYTES:
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
        if partition and _is_large(partition, size):
            found.append(partition_id)
    yield found


def _is_large(partition: Partition, size: int) -> bool:
    return 0 <= _least_bytes(_rules_of(partition)) < size + partition.log.tail_bytes


def _least_bytes(rules: Rules) -> int:
    limits = [rule.keep_bytes for rule in rules if rule.keep_bytes != UNLIMITED_BYTES]
    return min(limits, default=UNLIMITED_BYTES)


def list_extents(partition: Partition) -> list[Extent]:
    """Return the extents of a partition; none if segments contradict each other.

    Meta is damaged then: reads of this partition fail, and other partitions must not suffer.
    """
    try:
        return partition.log.extents
    except CorruptLog:
        return []


def _starts(
    cluster: Topics, partition_ids: Iterable[int], now_ms: int, needed: Needed
) -> Iterator[dict[int, int]]:
    """Look up these partitions; each may be in one segment or in hundreds."""
    starts: dict[int, int] = {}
    looked_at = 0
    for partition_id in partition_ids:
        partition = cluster.find_partition(partition_id)
        if partition is None:  # deleted meanwhile
            continue
        extents = list_extents(partition)
        start = find_trimmed_start(partition, extents, now_ms, needed(partition_id))
        if start > partition.log.start_offset:
            starts[partition_id] = start
        looked_at += LOOKUP + len(extents)
        if looked_at >= EXTENTS_A_STEP:
            yield starts
            starts, looked_at = {}, 0
    yield starts
