"""Reading by the manifest alone: what it promised, in order, or a clear error; never a gap."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.log.samples import CLUSTER, Sample, samples, write_segment
from trilogue.log.errors import CorruptLog, OffsetOutOfRange, SegmentMissing, UnknownPartition
from trilogue.log.files import OsFileSystem
from trilogue.log.segments.manifest import Manifest, ManifestTopic, PartitionRange, write_manifest
from trilogue.log.segments.sealed import SealedLog
from trilogue.log.segments.segment import RECORD, TRAILER
from trilogue.log.segments.segment_info import SegmentInfo, without

FILES = OsFileSystem()
ENTRY = 168


class Directory:
    """A data directory made by hand: segments, and a manifest that lists them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.segments = path / "segments"
        self.segments.mkdir(parents=True)
        self.infos: dict[int, SegmentInfo] = {}
        self.ranges: dict[int, PartitionRange] = {}
        self.generation = 0

    def add(self, segment_id: int, *parts: list[Sample]) -> SegmentInfo:
        entries = [entry for part in parts for entry in part]
        info = write_segment(FILES, self.segments, entries, segment_id=segment_id)
        self.infos[segment_id] = info
        for entry in entries:
            known = self.ranges.get(entry.partition_id, PartitionRange(0, 0, 0))
            end = max(entry.end, known.flushed_end)
            self.ranges[entry.partition_id] = PartitionRange(known.start_offset, end, end)
        return info

    def remove(self, segment_id: int) -> None:
        """Merged or retired, and the grace period is over."""
        (self.segments / self.infos.pop(segment_id).name).unlink()

    def publish(self) -> None:
        self.generation += 1
        topic = ManifestTopic("public", "default", "orders", bytes(16), tuple(self.ranges))
        segments = tuple(self.infos.values())
        manifest = Manifest(CLUSTER, self.generation, 1, (topic,), dict(self.ranges), segments)
        write_manifest(FILES, self.segments, manifest)

    def open(self) -> SealedLog:
        self.publish()
        return SealedLog(self.path, open_files=1)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path / "data")


def joined(entries: list[Sample]) -> bytes:
    return b"".join(entry.data for entry in entries)


def everything(sealed: SealedLog, partition_id: int, **bounds: int) -> bytes:
    return b"".join(sealed.read(partition_id, **bounds))


def test_a_partition_is_read_from_all_its_segments_in_order(directory: Directory):
    directory.add(3, samples(8, 7, base=20), samples(9, 2))
    directory.add(1, samples(8, 20))
    directory.add(2, samples(7, 5), samples(9, 4, base=2))
    sealed = directory.open()

    assert everything(sealed, 8) == joined(samples(8, 27))
    assert everything(sealed, 9) == joined(samples(9, 6))
    assert sealed.topic("public", "default", "orders").partitions == (8, 9, 7)
    assert sealed.range_of(8) == (0, 27)


@pytest.mark.parametrize("max_bytes", [1, ENTRY, ENTRY * 3 + 1, 1 << 20])
def test_a_range_is_read_to_the_entry(directory: Directory, max_bytes: int):
    directory.add(1, samples(8, 20))
    directory.add(2, samples(8, 20, base=20))
    sealed = directory.open()

    for start, end in ((0, 1), (5, 25), (19, 21), (20, 40), (7, 7), (40, 40), (39, 99)):
        found = b"".join(sealed.read(8, start, end, max_bytes=max_bytes))

        assert found == joined([each for each in samples(8, 40) if start <= each.base < end])


def test_an_entry_that_contains_the_start_comes_whole(directory: Directory):
    directory.add(1, samples(8, 4, span=10))
    sealed = directory.open()

    assert everything(sealed, 8, start=15, end=20) == samples(8, 4, span=10)[1].data
    assert [(piece.start, piece.end) for piece in sealed.plan(8, 15, 20)] == [(15, 20)]


def test_nothing_is_shown_below_the_start_or_beyond_the_stable_end(directory: Directory):
    directory.add(1, samples(8, 20))
    directory.ranges[8] = PartitionRange(4, 20, 15)
    sealed = directory.open()

    assert everything(sealed, 8) == joined(samples(8, 20)[4:15])
    assert everything(sealed, 8, end=99) == joined(samples(8, 20)[4:15])
    for offset in (3, 16):
        with pytest.raises(OffsetOutOfRange):
            everything(sealed, 8, start=offset)


def test_hidden_partition_is_read_from_its_compacted_segment(directory: Directory):
    """A compacted partition is elsewhere, with holes; its old place still has every message."""
    old = directory.add(1, samples(7, 3), samples(8, 20), samples(9, 3))
    kept = [samples(8, 20)[each] for each in (3, 9, 10, 19)]
    directory.add(2, kept)
    directory.infos[1] = without(old, [8])
    sealed = directory.open()

    assert everything(sealed, 8) == joined(kept)
    assert everything(sealed, 8, start=4, end=19) == joined(kept[1:3])
    assert everything(sealed, 7) == joined(samples(7, 3))


def test_many_partitions_are_planned_in_one_go(directory: Directory):
    for segment_id in (1, 2, 3):
        parts = [samples(each, 5, base=5 * (segment_id - 1)) for each in range(1, 40)]
        directory.add(segment_id, *parts)
    sealed = directory.open()

    plans = sealed.plan_all(dict.fromkeys(range(1, 40), (2, 12)))

    for pieces in plans.values():
        places = [(piece.segment.segment_id, piece.start, piece.end) for piece in pieces]
        assert places == [(1, 2, 5), (2, 5, 10), (3, 10, 12)]


def test_read_continues_in_the_new_segments_after_a_merge(directory: Directory):
    directory.add(1, samples(8, 500), samples(9, 1))
    directory.add(2, samples(8, 500, base=500))
    sealed = directory.open()
    reading = sealed.read(8, max_bytes=ENTRY * 20)
    found = bytes(next(reading))

    directory.add(3, samples(8, 1000))
    directory.remove(1)
    directory.remove(2)
    directory.publish()
    found += b"".join(reading)

    assert found == joined(samples(8, 1000))
    assert sealed.manifest.generation == 2
    assert everything(sealed, 8) == joined(samples(8, 1000))


def test_read_continues_in_the_compacted_segment_after_a_compaction(
    directory: Directory,
):
    """A message of the old end may be gone because there is a newer one, which lies beyond it."""
    directory.add(1, samples(8, 50))
    directory.add(2, samples(8, 50, base=50))
    sealed = directory.open()
    reading = sealed.read(8)
    found = bytes(next(reading))

    directory.add(3, [samples(8, 120)[each] for each in (20, 60, 119)])
    directory.remove(1)
    directory.remove(2)
    directory.publish()

    assert found == joined(samples(8, 50))
    assert b"".join(reading) == joined([samples(8, 120)[each] for each in (60, 119)])


def test_read_of_an_open_file_continues_after_its_removal(directory: Directory):
    directory.add(1, samples(8, 500))
    directory.add(2, samples(8, 500, base=500))
    directory.publish()
    reading = SealedLog(directory.path).read(8, max_bytes=ENTRY * 20)
    found = bytes(next(reading))

    directory.remove(1)
    directory.remove(2)

    assert found + b"".join(reading) == joined(samples(8, 1000))


def test_a_reader_overtaken_by_retention_gets_an_error(directory: Directory):
    directory.add(1, samples(8, 50))
    directory.add(2, samples(8, 50, base=50))
    directory.add(3, samples(8, 50, base=100))
    sealed = directory.open()
    reading = sealed.read(8)
    found = bytes(next(reading))  # of the first segment

    directory.remove(2)
    directory.ranges[8] = replace(directory.ranges[8], start_offset=100)
    directory.publish()

    with pytest.raises(OffsetOutOfRange):
        list(reading)
    assert found == joined(samples(8, 50))


def test_a_file_that_is_lost_is_no_end_of_the_data(directory: Directory):
    directory.add(1, samples(8, 50))
    lost = directory.add(2, samples(8, 50, base=50))
    sealed = directory.open()
    (directory.segments / lost.name).unlink()

    with pytest.raises(SegmentMissing, match=lost.name):
        everything(sealed, 8)
    directory.publish()
    with pytest.raises(SegmentMissing, match=lost.name):
        everything(sealed, 8)


def test_a_damaged_line_of_a_directory_is_an_error_and_never_a_gap(directory: Directory):
    """It fails reads of its own partition only: the adjacent rows show which one that may be."""
    info = directory.add(1, samples(7, 2), samples(8, 3), samples(9, 2))
    directory.add(2, samples(8, 3, base=3))
    path = directory.segments / info.name
    data = bytearray(path.read_bytes())
    data[len(data) - TRAILER.size - 2 * RECORD.size + 20] ^= 1
    path.write_bytes(data)

    sealed = directory.open()

    assert everything(sealed, 7) == joined(samples(7, 2))
    assert everything(sealed, 9) == joined(samples(9, 2))
    with pytest.raises(CorruptLog):
        everything(sealed, 8)


def test_the_same_messages_twice_are_an_error(directory: Directory):
    directory.add(1, samples(8, 50))
    directory.add(2, samples(8, 51))
    sealed = directory.open()

    with pytest.raises(CorruptLog, match="segments 1 and 2 both have offset 0 of partition 8"):
        everything(sealed, 8)


def test_a_partition_that_the_manifest_does_not_know_is_an_error(directory: Directory):
    sealed = directory.open()

    with pytest.raises(UnknownPartition, match="partition 8"):
        everything(sealed, 8)
    with pytest.raises(UnknownPartition, match="public/default/other"):
        sealed.topic("public", "default", "other")
    with pytest.raises(CorruptLog, match="no manifest"):
        SealedLog(directory.path / "elsewhere")


def test_reading_changes_nothing_and_needs_no_right_to(directory: Directory):
    directory.add(1, samples(8, 50))
    directory.publish()
    for path in (*directory.segments.iterdir(), directory.segments):
        path.chmod(0o500 if path.is_dir() else 0o400)
    before = {path.name: path.stat().st_mtime_ns for path in directory.segments.iterdir()}

    assert everything(SealedLog(directory.path), 8) == joined(samples(8, 50))

    directory.segments.chmod(0o700)
    assert {path.name: path.stat().st_mtime_ns for path in directory.segments.iterdir()} == before
