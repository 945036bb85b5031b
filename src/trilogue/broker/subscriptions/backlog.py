"""What durable subscriptions leave unread: how much it is, what is too old, what is too much.

Three policies of a topic act on it. None deletes anything: marks move, or producers are refused,
and retention takes what no subscription needs any more (broker/topics/retention.py).

    messageTTL                                 marks move over what was appended so long ago
    backlogQuota, consumer_backlog_eviction    marks move until nine tenths of the limit are left,
                                               or over what is older than the limit
    backlogQuota, producer_request_hold or     no producer begins, and those that are there are
    producer_exception                         sent off and hear it when they come again

The size of a backlog is that of the slowest subscription, in bytes as stored; inside an extent it
is taken to be spread evenly. Its age is that of the oldest message the slowest has not acked.

Times are those of the append. Segments and the tail know them by the block; entries of Pulsar's
format contain their own, so each of these expires at its own time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from trilogue.broker.errors import BacklogExceeded, BacklogHold
from trilogue.broker.topics.policies import BacklogQuota, BacklogQuotaPolicy, Policies
from trilogue.broker.topics.retention import list_extents
from trilogue.entry.entry import Format
from trilogue.entry.pulsar.pulsar_batch import broker_time
from trilogue.entry.walk import read_header

if TYPE_CHECKING:
    from trilogue.broker.cursors.subscription_cursors import SubscriptionCursors
    from trilogue.broker.topics.partition import Partition
    from trilogue.broker.topics.retention import Topics
    from trilogue.log.segments.extents import Extent

PARTITIONS_A_STEP: Final = 500
LEFT_TENTHS: Final = 9  # of a limit, after an eviction
SECOND_MS: Final = 1_000
NEVER_MS: Final = -1


class BacklogEviction(NamedTuple):
    """A partition whose marks may have to move."""

    partition: Partition
    until: int  # over everything below this offset; too much
    before_ms: int  # over everything appended before this time; NEVER_MS: over nothing


class _OffsetRun(NamedTuple):
    """Offsets and how many bytes they have."""

    base: int
    end: int
    size: int


def plan_moves(
    cluster: Topics, subscriptions: SubscriptionCursors, now_ms: int
) -> Iterator[list[BacklogEviction]]:
    """Yield what time to live and evictions demand, in steps of some milliseconds."""
    found: list[BacklogEviction] = []
    for number, partition_id in enumerate(subscriptions.partition_ids(), 1):
        partition = cluster.find_partition(partition_id)
        due = None if partition is None else _due(partition, subscriptions, now_ms)
        if due is not None:
            found.append(due)
        if number % PARTITIONS_A_STEP == 0:
            yield found
            found = []
    yield found


def _due(
    partition: Partition, subscriptions: SubscriptionCursors, now_ms: int
) -> BacklogEviction | None:
    policies, log = partition.policies, partition.log
    ages = [each for each in (policies.ttl_s, _age_limit(policies, evicts=True)) if each > 0]
    limit = _size_limit(policies, evicts=True)
    if not ages and limit < 0:
        return None
    mark = subscriptions.lowest_mark(log.partition_id)
    if mark is None or mark >= log.high_watermark:
        return None
    until = 0
    if limit >= 0:
        runs = _runs(partition)
        if _size_from(runs, mark) >= limit:
            until = _leaving(runs, limit * LEFT_TENTHS // 10)
    before_ms = now_ms - min(ages) * SECOND_MS if ages else NEVER_MS
    return BacklogEviction(partition, until, before_ms) if until or ages else None


def check_backlog(partition: Partition, subscriptions: SubscriptionCursors, now_ms: int) -> None:
    """Raise BacklogExceeded or BacklogHold where a quota refuses producers."""
    policies, log = partition.policies, partition.log
    size, age = policies.size_quota, policies.age_quota
    if size is None and age is None:
        return
    mark = subscriptions.lowest_mark(log.partition_id)
    if mark is None or mark >= log.high_watermark:
        return
    limit = _size_limit(policies, evicts=False)
    if size is not None and 0 <= limit <= (there := _size_from(_runs(partition), mark)):
        raise _refusal(size, f"a subscription leaves {there} bytes unacked")
    limit = _age_limit(policies, evicts=False)
    if age is not None and limit > 0 and _is_older(partition, mark, now_ms - limit * SECOND_MS):
        raise _refusal(age, f"a subscription leaves messages unacked for {limit} s")


def _size_limit(policies: Policies, *, evicts: bool) -> int:
    """Return the limit of a quota that evicts, or of one that does not; -1: there is none."""
    quota = policies.size_quota
    return quota.limit_bytes if quota is not None and _evicts(quota) is evicts else -1


def _age_limit(policies: Policies, *, evicts: bool) -> int:
    quota = policies.age_quota
    return quota.limit_s if quota is not None and _evicts(quota) is evicts else -1


def _evicts(quota: BacklogQuota) -> bool:
    return quota.overflow is BacklogQuotaPolicy.EVICTION


def _refusal(quota: BacklogQuota, reason: str) -> BacklogExceeded:
    kind = BacklogHold if quota.overflow is BacklogQuotaPolicy.REQUEST_HOLD else BacklogExceeded
    return kind(f"the backlog quota is exceeded: {reason}")


# -- how much


def backlog_size(partition: Partition, mark: int) -> int:
    """Return how many bytes there are from an offset on, about."""
    return _size_from(_runs(partition), mark)


def _runs(partition: Partition) -> Sequence[_OffsetRun]:
    log = partition.log
    extents: list[Extent] = list_extents(partition)
    runs = [_OffsetRun(each.base_offset, each.end_offset, each.size) for each in extents]
    runs.append(_OffsetRun(log.flushed_end, log.high_watermark, log.tail_bytes))
    return runs


def _size_from(runs: Sequence[_OffsetRun], offset: int) -> int:
    size = 0
    for base, end, bytes_here in runs:
        if offset <= base:
            size += bytes_here
        elif offset < end:
            size += bytes_here * (end - offset) // (end - base)
    return size


def _leaving(runs: Sequence[_OffsetRun], most: int) -> int:
    """Return the first offset from which on there are no more bytes than that."""
    for base, end, bytes_here in reversed(runs):
        if bytes_here > most:
            return end - (end - base) * most // bytes_here
        most -= bytes_here
    return 0


# -- how old


def _is_older(partition: Partition, mark: int, before_ms: int) -> bool:
    """Whether something from an offset on was surely appended before a time."""
    for extent in list_extents(partition):
        if extent.end_offset > mark:
            return extent.max_append_ms < before_ms
    found = partition.log.offset_for_append_time(before_ms, mark)
    return found is None or (isinstance(found, int) and found > mark)


def end_of_older(entries: memoryview, offset: int, before_ms: int) -> tuple[int, bool]:
    """Return the end of the entries, from an offset on, that are surely older than a time.

    The second value is whether all are. Only entries that contain their append time count.
    """
    at = 0
    while at < len(entries):
        header = read_header(entries[at:])
        entry = entries[at : at + header.length]
        if header.log_append_time or header.format is Format.TUBEMQ:
            appended_ms = header.max_timestamp
        elif header.format is Format.PULSAR:
            appended_ms = broker_time(entry)
        else:
            return offset, False
        if appended_ms >= before_ms:
            return offset, False
        offset = max(offset, header.last_offset + 1)
        at += header.length
    return offset, True
