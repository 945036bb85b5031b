"""The segments of a log, and the extents of each partition in them.

Adding or swapping a segment costs nothing per partition: the extents of one partition are looked up
at its first read (`Runs`), and brought up to date at the next one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from types import MappingProxyType

from trilogue.log.errors import CorruptLog
from trilogue.log.segments.extents import Extent
from trilogue.log.segments.segment_info import SegmentInfo, Swap

_RANGE = ("base_offset", "end_offset")


class Catalog:
    """All segments of one log. Used on the loop only."""

    def __init__(self) -> None:
        self._segments: dict[int, SegmentInfo] = {}
        self.segments: Mapping[int, SegmentInfo] = MappingProxyType(self._segments)  # by id
        self.generation = 0  # incremented when a segment is removed or changed
        self.added: list[SegmentInfo] = []  # in this generation, in order
        self.missing: Mapping[int, str] = {}  # names of segments whose files are lost, by id
        self._witnesses: dict[int, int] = {}  # segment id -> index of an extent that was live

    def add(self, segment: SegmentInfo) -> None:
        """Add a segment whose entries follow all known entries of their partitions."""
        self._segments[segment.segment_id] = segment
        self.added.append(segment)

    def swap(self, swap: Swap) -> None:
        """Replace segments by others in one step."""
        for segment_id in swap.removed:
            self._segments.pop(segment_id, None)
            self._witnesses.pop(segment_id, None)
        for segment in (*swap.changed, *swap.added):
            self._segments[segment.segment_id] = segment
            self._witnesses.pop(segment.segment_id, None)
        self._begin_generation()

    def remove(self, segment_id: int) -> SegmentInfo | None:
        """Remove a segment that no partition needs; return it, if it was known."""
        gone = self._segments.pop(segment_id, None)
        self._witnesses.pop(segment_id, None)
        self._begin_generation()
        return gone

    def _begin_generation(self) -> None:
        self.generation += 1
        self.added = []

    def find_missing(
        self, files: Container[str], lost_objects: Container[str] | None = None
    ) -> list[SegmentInfo]:
        """Find the segments that are not among these files and not in object storage either.

        `lost_objects` has names that a listing of the store did not have; None: there is no new
        listing. `missing` has all of them afterwards; returns those that it did not have before.
        """
        before = self.missing
        if lost_objects is None:
            lost_objects = set(before.values())
        found = [
            each
            for each in self._segments.values()
            if each.name not in files and (not each.store or each.name in lost_objects)
        ]
        self.missing = {each.segment_id: each.name for each in found}
        return [each for each in found if each.segment_id not in before]

    def dead(self, start_of: Callable[[int], int | None]) -> list[int]:
        """Return in order the ids of segments in which no partition has readable entries.

        `start_of` returns the start offset of a partition, None when it was deleted. One live
        extent is remembered for each segment, so that mostly a single check is enough.
        """
        return sorted(
            each.segment_id for each in self._segments.values() if not self._lives(each, start_of)
        )

    def _lives(self, segment: SegmentInfo, start_of: Callable[[int], int | None]) -> bool:
        ids, ends = segment.partitions.ids, segment.partitions.column("end_offset")
        witness = self._witnesses.get(segment.segment_id, 0)
        for at in chain(range(witness, len(ids)), range(min(witness, len(ids)))):
            start = start_of(ids[at])
            if start is not None and ends[at] > start:
                self._witnesses[segment.segment_id] = at
                return True
        return False


class Runs:
    """One partition's extents, by offset: their end offsets and their segments."""

    __slots__ = ("_catalog", "_ends", "_generation", "_holders", "_seen", "partition_id")

    def __init__(self, catalog: Catalog, partition_id: int) -> None:
        self.partition_id = partition_id
        self._catalog = catalog
        self._generation = -1
        self._seen = 0  # how many of the added segments of this generation are included
        self._ends: array[int] | None = None  # of the extents; None: there are none
        self._holders: Sequence[SegmentInfo] = ()

    def refresh(self) -> None:
        """Apply the changes of the catalog since the last call."""
        catalog = self._catalog
        if self._generation != catalog.generation:
            self._find(catalog.segments.values())
            self._generation = catalog.generation
            self._seen = len(catalog.added)
        elif self._seen < len(catalog.added):
            self._find((*self._holders, *catalog.added[self._seen :]))
            self._seen = len(catalog.added)

    def _find(self, segments: Iterable[SegmentInfo]) -> None:
        found = []
        for segment in segments:
            at = segment.partitions.index(self.partition_id)
            if at >= 0:
                bases, ends = (segment.partitions.column(each) for each in _RANGE)
                found.append((bases[at], ends[at], segment))
        found.sort(key=itemgetter(0))
        for (_, end, one), (base, _, other) in pairwise(found):
            if end > base:
                raise CorruptLog(
                    f"segments {one.segment_id} and {other.segment_id} both have offset {base} "
                    f"of partition {self.partition_id}"
                )
        self._ends = array("q", [end for _, end, _ in found]) if found else None
        self._holders = [segment for _, _, segment in found]

    @property
    def missing(self) -> Mapping[int, str]:
        """Names of the log's segments that are lost, by id."""
        return self._catalog.missing

    def holders(self, offset: int) -> Sequence[SegmentInfo]:
        """List the segments from the one that contains the offset or follows it."""
        self.refresh()
        return [] if self._ends is None else self._holders[bisect_right(self._ends, offset) :]

    def size_bytes(self, offset: int, end: int) -> int:
        """Return the bytes of the extents from the one with the offset on that begin below `end`.

        No extent is built: a scrape of /metrics reads this of each partition.
        """
        size = 0
        for segment in self.holders(offset):
            extents = segment.partitions
            at = extents.index(self.partition_id)
            if extents.column("base_offset")[at] < end:
                size += extents.column("size")[at]
        return size

    def __iter__(self) -> Iterator[tuple[Extent, SegmentInfo]]:
        """Yield the extents, by offset, with their segments."""
        return self.since(0)

    def since(self, offset: int) -> Iterator[tuple[Extent, SegmentInfo]]:
        """Yield the extents from the one that contains the offset or follows it."""
        self.refresh()
        if self._ends is None:
            return
        for segment in self._holders[bisect_right(self._ends, offset) :]:
            yield segment.partitions[self.partition_id], segment
