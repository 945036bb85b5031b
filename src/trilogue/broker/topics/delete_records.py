"""DeleteRecords: a partition's start moves up on request.

Like retention it moves the first offset that may be read, in meta first and then in the log, and
files are removed when nothing else is left in them. Unlike retention it may cut anywhere up to the
high watermark, also inside an entry and in what is not yet in a segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trilogue.broker.errors import OffsetOutOfRange, PolicyViolation, UnknownTopic
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.meta.operations import PutPartitionState


class Deletion(NamedTuple):
    """A partition and its new start; checked, not done yet."""

    partition: Partition
    start_offset: int


def check_delete_records(topic: Topic, index: int, before_offset: int | None) -> Deletion:
    """Return what deleting a partition's records below an offset would do, or refuse it.

    None is the high watermark: every record is deleted.
    """
    partition = topic.partition(index)
    if "delete" not in topic.settings.get("cleanup.policy", "delete").split(","):
        raise PolicyViolation("the topic is only compacted: cleanup.policy does not contain delete")
    end = partition.log.high_watermark
    if before_offset is None:
        before_offset = end
    if not 0 <= before_offset <= end:
        raise OffsetOutOfRange(f"{before_offset} is not between 0 and the end, {end}")
    return Deletion(partition, max(before_offset, partition.log.start_offset))


def plan_delete_records(deletions: Sequence[Deletion]) -> MetadataChange[dict[int, int]]:
    """Return the change; its result is the first offset of each partition, by its id.

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

    return MetadataChange(
        lambda: [
            PutPartitionState(partition.partition_id, start_offset=start_offset)
            for partition, start_offset in starts.items()
        ],
        (),
        apply,
        on_conflict=UnknownTopic("the topic was deleted meanwhile"),
    )


def delete_records(
    topic: Topic, before_offsets: Mapping[int, int | None]
) -> MetadataChange[dict[int, int]]:
    """Return the change for offsets by partition number, or refuse all of them."""
    return plan_delete_records(
        [check_delete_records(topic, index, offset) for index, offset in before_offsets.items()]
    )
