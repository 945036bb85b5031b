"""The input and the result of a compaction.

Both are sent to the helper process and back (pickled), so they are plain values.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trilogue.log.segments.segment_info import SegmentInfo, Swap, without


class CompactJob(msgspec.Struct, frozen=True):
    """The input of a compaction in the helper process.

    `inputs` are all segments that hold something of the partition from `start_offset` on, by
    offset; those behind `end_offset` are only read for transaction markers. They need not list the
    extents of other partitions.
    """

    partition_id: int
    inputs: tuple[SegmentInfo, ...]
    directory: str  # of inputs and outputs
    segment_ids: tuple[int, ...]  # reserved; the last output takes all that is left
    level: int  # of the outputs
    start_offset: int  # entries that end at or below it are dropped
    compacted_end: int  # the part below it is compacted already
    end_offset: int  # where compaction ends: stable, flushed, old enough
    delete_retention_ms: int  # how long a tombstone stays after it became the last of its key
    producers: dict[int, int]  # known producers -> base offset of their last entry
    map_bytes: int  # memory for keys
    target_bytes: int  # an output ends when it reaches this size
    cluster_id: bytes  # 16 bytes
    node_id: int
    node_epoch: int
    now_ms: int
    bytes_per_second: int | None = None  # rate of reading; None = unlimited
    direct: bool = False  # whether the file system takes writes past the page cache


class CompactResult(msgspec.Struct, frozen=True):
    """The result of a compaction. The partition is no longer read from the segments `replaced`."""

    added: tuple[SegmentInfo, ...]
    replaced: tuple[int, ...]  # segment ids
    compacted_end: int  # where compaction ended
    entries_read: int
    entries_written: int
    records_dropped: int
    bytes_read: int
    bytes_written: int

    def swap(self, partition_id: int, inputs: Iterable[SegmentInfo]) -> Swap:
        """Return the swap of segments; `inputs` have the extents of all partitions."""
        left = [
            without(each, [partition_id]) for each in inputs if each.segment_id in self.replaced
        ]
        return Swap(
            tuple(each.segment_id for each in left if not each.partitions),
            tuple(each for each in left if each.partitions),
            self.added,
        )
