"""The metadata of segments; the jobs and results of a flush and a merge.

These values are sent to the helper process and back (pickled), and stored in meta (one row per
segment) and in the manifest. So they are plain, frozen and hold nothing but numbers and names.

A segment holds the entries of many partitions, sorted by partition id and then by offset; so the
bytes of one partition in one segment are one unbroken run, its *extent*.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from trilogue.log.segments.extents import Extents


def segment_name(segment_id: int) -> str:
    """Return the file name of a segment; ids are never reused, so neither are names."""
    return f"{segment_id:016d}.segment"


class SegmentInfo(msgspec.Struct, frozen=True):
    """One segment as meta and the manifest record it; enough to plan a read."""

    segment_id: int
    level: int  # 0 = as flushed
    name: str  # of the file, inside the folder of segments
    size: int  # of the whole file
    node_id: int
    node_epoch: int
    created_ms: int
    first_sequence: int  # of the journal frames it was made from
    last_sequence: int
    footer_position: int
    footer_size: int
    partitions: Extents  # by partition id
    store: str = ""  # "": a file in the folder of segments; else the object store it lies in
    hidden: tuple[int, ...] = ()  # partitions that are in the file and no longer count, in order

    @property
    def data_size(self) -> int:
        """Bytes of entries that count, without header, footer and trailer."""
        return sum(self.partitions.column("size"))


class Swap(msgspec.Struct, frozen=True):
    """Replaces segments by others with the same messages, or with those to keep.

    Segments in `changed` stay, and count for fewer partitions from now on (`hidden` has the others,
    whose messages are in `added`). Those in `removed` count for none.
    """

    removed: tuple[int, ...] = ()
    changed: tuple[SegmentInfo, ...] = ()
    added: tuple[SegmentInfo, ...] = ()


class FlushJob(msgspec.Struct, frozen=True):
    """The input of a flush in the helper process: sealed journal files become one segment.

    What is dropped: frames at or below `flushed_through`, entries that end at or below their
    partition's flushed end or start offset, and entries of partitions that are not `known`
    (deleted: a partition is in meta before its first frame). The files must hold every frame up to
    `last_sequence`: if they do not, acknowledged data is missing and the flush fails.
    """

    journal_paths: tuple[str, ...]  # sealed files, oldest first
    segment_path: str
    segment_id: int
    last_sequence: int  # of the last sealed file's last frame
    flushed_through: int  # the sequence of the last frame that is in segments already; 0 = none
    flushed_ends: dict[int, int]  # partition id -> end of what is in segments already
    known: frozenset[int]  # partition ids in meta
    start_offsets: dict[int, int]  # partition id -> first offset that may still be read
    cluster_id: bytes  # 16 bytes
    node_id: int
    node_epoch: int
    now_ms: int
    bytes_per_second: int | None = None  # rate; None = unlimited
    incarnations: tuple[int, ...] = ()  # of the files, in order: none may have been recycled since
    direct: bool = False  # whether the file system takes writes past the page cache
    # of partitions with open transactions at their flushed end: producer id, first offset
    open_transactions: dict[int, tuple[tuple[int, int], ...]] = msgspec.field(default_factory=dict)
    sizes: tuple[int, ...] = ()  # of the files up to the end of their last frame; () = as they are


class FlushResult(msgspec.Struct, frozen=True):
    """The result of a flush. `segment` is None, and no file exists, when nothing was kept."""

    segment: SegmentInfo | None
    ends: dict[int, int]  # partition id -> new flushed end, for each known partition in the files
    last_sequence: int  # becomes flushed_through
    entries: int  # written
    bytes_in: int  # of journal read
    bytes_written: int  # of segment
    # at their new flushed end, of partitions that had any before or had a transactional entry
    open_transactions: dict[int, tuple[tuple[int, int], ...]] = msgspec.field(default_factory=dict)


class MergeJob(msgspec.Struct, frozen=True):
    """The input of a merge in the helper process: segments become fewer and larger ones.

    For no partition may a segment that is not an input hold entries between those of two inputs.
    Dropped are partitions that are not in `starts`, and entries that end at or below their
    partition's start.
    """

    inputs: tuple[SegmentInfo, ...]
    directory: str  # of inputs and outputs
    segment_ids: tuple[int, ...]  # reserved: enough for any outcome
    level: int  # of the outputs
    starts: dict[int, int]  # known partition id -> first offset that may still be read
    own_bytes: int  # a partition of this size gets segments of its own
    target_bytes: int  # an output ends when it reaches this size
    cluster_id: bytes  # 16 bytes
    node_id: int
    node_epoch: int
    now_ms: int
    bytes_per_second: int | None = None  # rate; None = unlimited
    direct: bool = False  # whether the file system takes writes past the page cache


class MergeResult(msgspec.Struct, frozen=True):
    """The result of a merge. Partitions in `left` have a damaged index and stay where they were."""

    added: tuple[SegmentInfo, ...]
    left: dict[int, tuple[int, ...]]  # segment id of an input -> partition ids
    entries: int  # written
    bytes_read: int
    bytes_written: int
    dead_bytes: int  # of dropped entries
    damaged_blocks: int = 0  # that were copied unchanged

    def swap(self, job: MergeJob) -> Swap:
        """Return the swap of segments that puts the result in use."""
        changed = []
        for segment in job.inputs:
            left = self.left.get(segment.segment_id)
            if left:
                gone = sorted(set(segment.partitions) - set(left))
                changed.append(without(segment, gone))
        kept = {segment.segment_id for segment in changed}
        removed = (each.segment_id for each in job.inputs if each.segment_id not in kept)
        return Swap(tuple(removed), tuple(changed), self.added)


def without(segment: SegmentInfo, partition_ids: Collection[int]) -> SegmentInfo:
    """Return the segment without some of its partitions: they are hidden."""
    gone = [each for each in partition_ids if each in segment.partitions]
    return replace(
        segment,
        partitions=segment.partitions.without(gone),
        hidden=tuple(sorted({*segment.hidden, *gone})),
    )
