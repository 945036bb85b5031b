"""Deleting a topic's oldest records on request: a partition starts later from then on.

Like retention it moves the first offset that may be read, in meta first and then in the log, and
bytes go when nothing else is left in their files. Unlike retention it may cut anywhere up to the
high watermark, also inside an entry and in what is not yet in a segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from trilogue.broker.commit import Commit
from trilogue.broker.errors import OffsetOutOfRange, PolicyViolation, UnknownTopic
from trilogue.broker.partition import Partition
from trilogue.broker.topic import Topic
from trilogue.meta.port import PutPartitionState

HIGH_WATERMARK: Final = -1  # as an offset: everything that may be read


class Deletion(NamedTuple):
    """A partition and where it is to start; checked, and not done yet."""

    partition: Partition
    start_offset: int


def check_delete_records(topic: Topic, index: int, before_offset: int) -> Deletion:
    """Return what deleting a partition's records below an offset would do, or refuse it."""
    partition = topic.partition(index)
    if "delete" not in topic.settings.get("cleanup.policy", "delete").split(","):
        raise PolicyViolation("the topic is only compacted: cleanup.policy does not say delete")
    end = partition.log.high_watermark
    if before_offset == HIGH_WATERMARK:
        before_offset = end
    if not 0 <= before_offset <= end:
        raise OffsetOutOfRange(f"{before_offset} is not between 0 and the end, {end}")
    return Deletion(partition, max(before_offset, partition.log.start_offset))


def plan_delete_records(deletions: Sequence[Deletion]) -> Commit[dict[int, int]]:
    """Decide to delete; the commit's result is the first offset of each partition, by its id.

    A partition that was deleted meanwhile is missing there.
    """
    starts: dict[Partition, int] = {}
    for partition, start_offset in deletions:
        starts[partition] = max(start_offset, starts.get(partition, 0))

    def apply() -> dict[int, int]:
        alive = [each for each in starts if not each.deleted]
        for partition in alive:
            partition.log.retain_from(starts[partition])
        return {each.partition_id: each.log.start_offset for each in alive}

    return Commit(
        lambda: [
            PutPartitionState(partition.partition_id, start_offset=start_offset)
            for partition, start_offset in starts.items()
        ],
        (),
        apply,
        outrun=UnknownTopic("the topic was deleted meanwhile"),
    )


def delete_records(topic: Topic, before_offsets: Mapping[int, int]) -> Commit[dict[int, int]]:
    """Decide to delete the records below these offsets, by partition number, or refuse all."""
    return plan_delete_records(
        [check_delete_records(topic, index, offset) for index, offset in before_offsets.items()]
    )
