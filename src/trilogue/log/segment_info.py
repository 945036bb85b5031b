"""What is known about a segment without opening it, and the order and receipt of a flush.

These values travel: to the helper process and back (they are pickled), into meta (one row per
segment) and into the manifest. So they are plain, frozen and hold nothing but numbers and names.

A segment holds the entries of many partitions, sorted by partition id and then by offset; so the
bytes of one partition in one segment are one unbroken run, its *extent*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import cast


def segment_name(segment_id: int) -> str:
    """Name the file of a segment; ids are never reused, so neither are names."""
    return f"{segment_id:016d}.segment"


@dataclass(frozen=True, slots=True)
class Extent:
    """One partition's run of entries inside one segment.

    `end_offset` is the end of the last entry's span, so the next offset that is *not* here. There
    may be holes between the two. Times come from entry headers: event times are what producers
    said (`min_event_ms` is the smallest base timestamp, a hint; `max_event_ms` is exact), append
    times are the broker's. -1 means none is known.
    """

    partition_id: int
    base_offset: int
    end_offset: int
    position: int  # of the first byte, in the segment file
    size: int  # bytes of entries
    entry_count: int
    owner_epoch: int  # of the newest entry
    min_event_ms: int
    max_event_ms: int
    min_append_ms: int
    max_append_ms: int


EXTENT_FIELDS = tuple(each.name for each in fields(Extent))
_extent_row = attrgetter(*EXTENT_FIELDS)


def extent_rows(extents: Mapping[int, Extent]) -> list[tuple[int, ...]]:
    """Turn extents into bare tuples, as the manifest and meta keep them: many, and all numbers."""
    return [cast("tuple[int, ...]", _extent_row(extent)) for extent in extents.values()]


def extents_from_rows(rows: Iterable[tuple[int, ...]]) -> dict[int, Extent]:
    """Turn the tuples back; one of another length is a TypeError."""
    return {extent.partition_id: extent for extent in (Extent(*row) for row in rows)}


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment as meta and the manifest record it; enough to plan a read, not to do one."""

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
    partitions: dict[int, Extent]  # by partition id; one extent each

    @property
    def data_size(self) -> int:
        """Bytes of entries, without header, footer and trailer."""
        return sum(extent.size for extent in self.partitions.values())


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Everything the helper process needs to turn sealed journal files into one segment.

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
    known: frozenset[int]  # partition ids that meta knows
    start_offsets: dict[int, int]  # partition id -> first offset that may still be read
    cluster_id: bytes  # 16 bytes
    node_id: int
    node_epoch: int
    now_ms: int
    bytes_per_second: int | None = None  # pace; None = as fast as it goes
    incarnations: tuple[int, ...] = ()  # of the files, in their order: none may be in a later life
    direct: bool = False  # whether the file system takes writes past the page cache


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What a flush made. `segment` is None when nothing was worth keeping (no file exists then)."""

    segment: SegmentInfo | None
    ends: dict[int, int]  # partition id -> new flushed end, for each known partition seen
    last_sequence: int  # becomes flushed_through
    entries: int  # written
    bytes_in: int  # of journal read
    bytes_written: int  # of segment
