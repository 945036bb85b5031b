"""Which partitions of topics with `cleanup.policy=compact` are due for compaction, and up to where.

The plan uses a partition's extents, its runs of entries in segments:

    start        compacted end              end                       end of what is in segments
      |   clean    |         dirty           |  too young, undecided   |

The end is bounded by open transactions and by `min.compaction.lag.ms`; what is still in the journal
is never touched, but the journal's file is ended early for what waits there longer than
`max.compaction.lag.ms` (KIP-354), as Kafka then rolls its segment. Compaction is due when the dirty
part is more than `min.cleanable.dirty.ratio` of both, or when the oldest message in it was appended
`max.compaction.lag.ms` ago. Lags count from the append: a replay of old data is as young as its
append, which a producer cannot set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from trilogue.broker.topics.retention import EXTENTS_A_STEP, LOOKUP, list_extents
from trilogue.log.transactions import stable_end_of

if TYPE_CHECKING:
    from trilogue.broker.settings.topic_settings import TopicSettings
    from trilogue.broker.topics.partition import Partition
    from trilogue.broker.topics.topic import Topic
    from trilogue.log.segments.extents import Extent
    from trilogue.meta.operations import PartitionState

TOPICS_A_STEP: Final = 2_000


class CompactionTask(NamedTuple):
    """A partition to compact, up to an end."""

    start_offset: int
    compacted_end: int
    end_offset: int
    delete_retention_ms: int
    is_forced: bool  # by the largest lag
    dirty_ratio: float


def plan_compaction(
    topics: Iterable[Topic], states: Mapping[int, PartitionState], now_ms: int
) -> Iterator[dict[int, CompactionTask]]:
    """Yield the partitions that are due, by their ids.

    In steps of a few milliseconds, many of them empty; topics may come and go between. `states` are
    those that meta has of partitions.
    """
    rest = iter(list(topics))
    while some := list(islice(rest, TOPICS_A_STEP)):
        compacted = [each for each in some if each.partitions[0].settings.compacts]
        partitions = (partition for topic in compacted for partition in topic.local_partitions)
        found: dict[int, CompactionTask] = {}
        looked_at = 0
        for partition, state in _dirty(partitions, states):
            extents = list_extents(partition)
            due = plan_partition(extents, state, partition.settings, now_ms)
            if due is not None:
                found[partition.partition_id] = due
            looked_at += LOOKUP + len(extents)
            if looked_at >= EXTENTS_A_STEP:
                yield found
                found, looked_at = {}, 0
        yield found


def find_overdue_in_journal(
    topics: Iterable[Topic], states: Mapping[int, PartitionState], age_ms: int
) -> Iterator[dict[int, int]]:
    """Yield the partitions with something in the journal that may not be left there so long.

    Each with its flushed end, in steps as in `plan_compaction`. `age_ms` is that of the oldest
    entry of any partition in the journal.
    """
    rest = iter(list(topics))
    while some := list(islice(rest, TOPICS_A_STEP)):
        found: dict[int, int] = {}
        for topic in some:
            settings = topic.partitions[0].settings
            if not settings.compacts or age_ms <= settings.compaction_lag_max_ms:
                continue
            for partition in topic.local_partitions:
                state = states.get(partition.partition_id)
                if state is not None and partition.log.high_watermark > state.flushed_end:
                    found[partition.partition_id] = state.flushed_end
        yield found


def _dirty(
    partitions: Iterable[Partition], states: Mapping[int, PartitionState]
) -> Iterator[tuple[Partition, PartitionState]]:
    """Skip partitions without new messages, before looking up their extents."""
    for partition in partitions:
        state = states.get(partition.partition_id)
        if state is None or partition.deleted:
            continue
        if max(state.start_offset, state.compacted_end) < state.flushed_end:
            yield partition, state


def plan_partition(
    extents: Sequence[Extent], state: PartitionState, settings: TopicSettings, now_ms: int
) -> CompactionTask | None:
    """Return the task of a partition that is due, or None; `extents` in order of offsets."""
    start = state.start_offset
    floor = max(start, state.compacted_end)
    stable_end = stable_end_of(state.open_transactions, start, state.flushed_end)
    clean = dirty = 0.0
    end, oldest_ms = floor, now_ms
    for extent in extents:
        if extent.end_offset <= floor:
            clean += extent.size
            continue
        if extent.base_offset >= stable_end or _is_young(extent, settings, now_ms):
            break
        if end == floor:
            oldest_ms = extent.min_append_ms
        end = min(extent.end_offset, stable_end)
        is_clean = max(0, floor - extent.base_offset) / (extent.end_offset - extent.base_offset)
        clean += extent.size * is_clean
        dirty += extent.size * (1 - is_clean)
    if end <= floor or not dirty:
        return None
    ratio = dirty / (clean + dirty)
    is_forced = now_ms - oldest_ms > settings.compaction_lag_max_ms
    if not is_forced and ratio <= settings.dirty_ratio_min:
        return None
    retention_ms = settings.delete_retention_ms
    return CompactionTask(start, state.compacted_end, end, retention_ms, is_forced, ratio)


def _is_young(extent: Extent, settings: TopicSettings, now_ms: int) -> bool:
    lag_ms = settings.compaction_lag_min_ms
    return lag_ms > 0 and extent.max_append_ms > now_ms - lag_ms
