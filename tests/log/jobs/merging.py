"""Segments to merge, and what reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from tests.fakes import FakeFileSystem
from tests.log.samples import CLUSTER, Sample
from trilogue.log.files import FileSystem
from trilogue.log.jobs.merge import merge
from trilogue.log.segments.segment import (
    AbortedTransaction,
    Block,
    EpochStart,
    SegmentHeader,
    SegmentWriter,
)
from trilogue.log.segments.segment_info import (
    MergeJob,
    MergeResult,
    SegmentInfo,
    segment_name,
)
from trilogue.log.segments.segment_reader import SegmentReader

HOME = Path("/segments")
KIB = 1 << 10


def put(
    files: FileSystem,
    home: Path,
    segment_id: int,
    entries: Sequence[Sample],
    *,
    per_block: int = 3,
    aborted: dict[int, list[AbortedTransaction]] | None = None,
) -> SegmentInfo:
    """A segment as a flush makes it, made of frame `segment_id`."""
    file = files.open(home / segment_name(segment_id), create=True)
    writer = SegmentWriter(file, SegmentHeader(segment_id, 0, 1, 7, CLUSTER, 1234))
    for partition_id in sorted({entry.partition_id for entry in entries}):
        mine = [entry for entry in entries if entry.partition_id == partition_id]
        epochs = [EpochStart(mine[0].epoch, mine[0].base)]
        for one, other in pairwise(mine):
            if one.epoch != other.epoch:
                epochs.append(EpochStart(other.epoch, other.base))
        writer.begin(partition_id, epochs, (aborted or {}).get(partition_id, ()))
        for at in range(0, len(mine), per_block):
            some = mine[at : at + per_block]
            times = (min(e.base_ms for e in some), max(e.max_ms for e in some))
            appended = (5_000 + segment_id, 5_000 + segment_id)
            block = Block(some[0].base, some[-1].end, len(some), *times, *appended)
            writer.block(block, b"".join(entry.data for entry in some))
    info = writer.finish(segment_name(segment_id), segment_id, segment_id)
    file.close()
    files.sync_directory(home)
    return info


def job(
    inputs: Sequence[SegmentInfo],
    home: Path = HOME,
    *,
    starts: dict[int, int] | None = None,
    own_bytes: int = 1 << 40,
    target_bytes: int = 1 << 40,
    first_id: int = 100,
) -> MergeJob:
    known = {each: 0 for info in inputs for each in info.partitions}
    return MergeJob(
        inputs=tuple(inputs),
        directory=str(home),
        segment_ids=tuple(range(first_id, first_id + 100)),
        level=1,
        starts=known if starts is None else starts,
        own_bytes=own_bytes,
        target_bytes=target_bytes,
        cluster_id=CLUSTER,
        node_id=1,
        node_epoch=7,
        now_ms=9_999,
    )


class Disk:
    """A folder with segments of the entries given, one segment a list."""

    def __init__(
        self, *flushes: Sequence[Sample], direct: bool = False, per_block: int = 3
    ) -> None:
        self.files = FakeFileSystem(direct=direct)
        self.files.make_directory(HOME)
        self.inputs = [
            put(self.files, HOME, number, entries, per_block=per_block)
            for number, entries in enumerate(flushes, 1)
        ]

    def merge(self, **changes: object) -> MergeResult:
        return merge(job(self.inputs, **changes), self.files)  # type: ignore[arg-type]

    def reader(self, info: SegmentInfo) -> SegmentReader:
        return SegmentReader.open(self.files, HOME / info.name, info)

    def read(self, infos: Iterable[SegmentInfo], partition_id: int, offset: int = 0) -> bytes:
        return read_all(self.files, HOME, infos, partition_id, offset)

    def names(self) -> list[str]:
        return self.files.listdir(HOME)


def read_all(
    files: FileSystem, home: Path, infos: Iterable[SegmentInfo], partition_id: int, offset: int = 0
) -> bytes:
    """All entries of a partition from the one with this offset on, over several segments."""
    mine = [info for info in infos if partition_id in info.partitions]
    found = b""
    for info in sorted(mine, key=lambda info: info.partitions[partition_id].base_offset):
        reader = SegmentReader.open(files, home / info.name, info)
        found += reader.read(partition_id, offset, 1 << 40)
        reader.close()
    return found


def joined(entries: Iterable[Sample], offset: int = 0) -> bytes:
    return b"".join(entry.data for entry in entries if entry.end > offset)


def rows(files: FileSystem, info: SegmentInfo, partition_id: int) -> list[AbortedTransaction]:
    """Return the index's rows of transactions, also of those that continue after the segment."""
    index = SegmentReader.open(files, HOME / info.name, info)._footer.index(partition_id)
    assert index is not None
    return index.aborted


def blocks(disk: Disk, info: SegmentInfo, partition_id: int) -> list[tuple[int, int]]:
    """Base offset and size of each block."""
    reader = disk.reader(info)
    index = reader._footer.index(partition_id)
    assert index is not None
    reader.close()
    return list(zip(index.bases, index.sizes, strict=True))
