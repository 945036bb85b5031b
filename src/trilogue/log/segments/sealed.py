"""Reads segments without a broker, by the manifest only.

    sealed = SealedLog(Path("/var/lib/trilogue"))
    for records in sealed.read(partition_id):          # start offset up to the stable end
        ...                                            # whole entries, verified, in order

A broker may use the directory at the same time: nothing is locked and nothing written. A read
returns the content of one manifest, a consistent prefix of each partition: everything that was in
segments when the manifest was written, to the last message. Segments that are merged or expire in
the meantime stay for a grace period (`segments.grace`); a slower reader that finds a file gone
loads the newest manifest and continues at its offset. If retention has deleted what it was about
to read, that is `OffsetOutOfRange` and never a silent gap.

Spark executors import this: it needs the entry and log rooms only, and blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from trilogue.entry.walk import walk_headers
from trilogue.log.errors import (
    CorruptLog,
    ObjectMissing,
    OffsetOutOfRange,
    SegmentMissing,
    UnknownPartition,
)
from trilogue.log.files import FileSystem, OsFileSystem
from trilogue.log.objects.cache import ObjectCache
from trilogue.log.segments.extents import Extent
from trilogue.log.segments.manifest import ManifestTopic, SealedManifest, read_manifest
from trilogue.log.segments.segment import AbortedTransaction
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.log.segments.segment_reader import HANDLES_MAX, SegmentReaders

READ_BYTES: Final = 1 << 20
SEGMENTS: Final = "segments"


class Piece(msgspec.Struct, frozen=True):
    """The part of a range that one segment holds: from `start` up to `end`."""

    segment: SegmentInfo
    extent: Extent
    start: int
    end: int


class SealedLog:
    """The sealed part of a data directory, by one manifest, and by the next one after `refresh`.

    Not for several threads at once.
    """

    def __init__(
        self,
        directory: Path,
        *,
        files: FileSystem | None = None,
        objects: ObjectCache | None = None,
        open_files: int = HANDLES_MAX,
    ) -> None:
        """Read the manifest of a data directory. Raises `CorruptLog`, `NewerFormat`, `OSError`.

        It keeps descriptor and footer of `open_files` segments: an open file survives its deletion.
        """
        self._files = files or OsFileSystem()
        self._segments = directory / SEGMENTS
        self._readers = SegmentReaders(self._files, self._segments, open_files, objects)
        self.manifest: SealedManifest = read_manifest(self._files, self._segments)

    def close(self) -> None:
        """Close all open segments."""
        self._readers.close()

    def refresh(self) -> bool:
        """Load the current manifest; return whether it is a newer one."""
        before, self.manifest = self.manifest, read_manifest(self._files, self._segments)
        if self.manifest.generation == before.generation:
            return False
        known = {segment.info.segment_id for segment in self.manifest.segments}
        for segment in before.segments:
            if segment.info.segment_id not in known:
                self._readers.forget(segment.info.segment_id)
        return True

    def topic(self, tenant: str, namespace: str, name: str) -> ManifestTopic:
        """Return the topic of this name."""
        for topic in self.manifest.topics:
            if (topic.tenant, topic.namespace, topic.name) == (tenant, namespace, name):
                return topic
        raise UnknownPartition(f"no topic {tenant}/{namespace}/{name} in {self._segments}")

    def range_of(self, partition_id: int) -> tuple[int, int]:
        """Return the readable range of a partition: start offset and stable end."""
        known = self.manifest.partitions.get(partition_id)
        if known is None:
            raise UnknownPartition(f"no partition {partition_id} in {self._segments}")
        return known.start_offset, max(known.start_offset, known.stable_end)

    def plan(
        self, partition_id: int, start: int | None = None, end: int | None = None
    ) -> list[Piece]:
        """Return the segments to read for a range of offsets, in order, by their own footers.

        Without bounds it is the whole readable range. Raises `OffsetOutOfRange` outside of it.
        """
        return self.plan_all({partition_id: (start, end)})[partition_id]

    def plan_all(
        self, wanted: Mapping[int, tuple[int | None, int | None]]
    ) -> dict[int, list[Piece]]:
        """Plan many partitions; every segment that may hold one of them is opened once."""
        return self._find({each: self._bounded(each, *bounds) for each, bounds in wanted.items()})

    def _find(self, ranges: Mapping[int, tuple[int, int]]) -> dict[int, list[Piece]]:
        """Return the segments' parts of these ranges of offsets, by partition."""
        found: dict[int, list[Piece]] = {each: [] for each in ranges}
        for segment in self.manifest.segments:
            partition_ids = [each for each in ranges if segment.may_hold(each)]
            if not partition_ids:
                continue
            with self._readers.lease(segment.info) as reader:
                extents = [reader.extent(each) for each in partition_ids]
            for partition_id, extent in zip(partition_ids, extents, strict=True):
                start, end = ranges[partition_id]
                if extent is None or extent.end_offset <= start or extent.base_offset >= end:
                    continue
                first, last = max(start, extent.base_offset), min(end, extent.end_offset)
                found[partition_id].append(Piece(segment.info, extent, first, last))
        for pieces in found.values():
            pieces.sort(key=lambda piece: piece.extent.base_offset)
            _check(pieces)
        return found

    def _bounded(self, partition_id: int, start: int | None, end: int | None) -> tuple[int, int]:
        first, last = self.range_of(partition_id)
        start = first if start is None else start
        if not first <= start <= last:
            raise OffsetOutOfRange(start, first, last)
        return start, last if end is None else min(end, last)

    def aborted(
        self, partition_id: int, start: int | None = None, end: int | None = None
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that have entries in a range; readers skip those.

        An entry is skipped when it is one of the producer's from the transaction's first to its
        last offset. The markers may lie beyond the stable end, which the range cannot pass.
        """
        first, end = self._bounded(partition_id, start, end)
        while True:
            sealed_end = self.manifest.partitions[partition_id].flushed_end
            try:
                pieces = self._find({partition_id: (first, sealed_end)})[partition_id]
                segments = [piece.segment for piece in pieces]
                return self._readers.aborted(segments, partition_id, first, end)[0]
            except (SegmentMissing, ObjectMissing):
                if not self.refresh():  # the manifest still lists it: it is lost
                    raise
                self._bounded(partition_id, first, end)

    def read(
        self,
        partition_id: int,
        start: int | None = None,
        end: int | None = None,
        *,
        max_bytes: int = READ_BYTES,
    ) -> Iterator[memoryview]:
        """Read whole entries from the one that contains `start`, those that begin below `end`.

        Without an end, read all that the manifest lists, and, if a file is gone in the meantime,
        all that the newest one lists: messages missing from a compacted topic have newer ones
        there. With an end, the last messages of some keys may be beyond it, as for every reader of
        such topics.
        """
        offset, bound = self._bounded(partition_id, start, end)
        while True:
            try:
                for piece in self.plan(partition_id, offset, bound):
                    for records, after in self._read_piece(piece, offset, max_bytes):
                        offset = after
                        yield records
            except (SegmentMissing, ObjectMissing):
                if not self.refresh():  # the manifest still lists it: it is lost
                    raise
                _, bound = self._bounded(partition_id, offset, end)
            else:
                return

    def entry_for_time(
        self, piece: Piece, timestamp_ms: int, from_offset: int = 0
    ) -> memoryview | None:
        """Return the first entry of a piece that may have this time; see `SegmentReader`."""
        with self._readers.lease(piece.segment) as reader:
            return reader.entry_for_time(piece.extent.partition_id, timestamp_ms, from_offset)

    def _read_piece(
        self, piece: Piece, offset: int, max_bytes: int
    ) -> Iterator[tuple[memoryview, int]]:
        """Read one segment's part; yield each read with the start of the next one."""
        partition_id = piece.extent.partition_id
        offset = max(offset, piece.start)
        while offset < piece.end:
            data = self._readers.read(piece.segment, partition_id, offset, max_bytes)
            if not data:
                return  # a hole up to the end of this part
            walked = walk_headers(data)
            bases = [base for _, _, base, *_ in walked]
            count = bisect_right(bases, piece.end - 1)
            if not count:
                return
            position, length, base, delta, *_ = walked[count - 1]
            offset = base + delta + 1
            yield data[: position + length], offset


def _check(pieces: list[Piece]) -> None:
    """Raise `CorruptLog` if two segments have the same messages: only one of them may count."""
    for one, other in pairwise(pieces):
        if one.extent.end_offset > other.extent.base_offset:
            raise CorruptLog(
                f"segments {one.segment.segment_id} and {other.segment.segment_id} both have "
                f"offset {other.extent.base_offset} of partition {one.extent.partition_id}"
            )
