"""The segment's bytes: what is written, where, and the summary of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.samples import CLUSTER, Sample, samples, write_segment
from trilogue.log.files import OsFileSystem
from trilogue.log.segments.appender import PIECE
from trilogue.log.segments.extents import Extent
from trilogue.log.segments.segment import (
    BLOCK,
    HEADER,
    RECORD,
    TRAILER,
    Block,
    EpochStart,
    SegmentHeader,
    SegmentWriter,
)
from trilogue.log.segments.segment_info import segment_name

FILES = OsFileSystem()
VECTORS = Path(__file__).parents[2] / "vectors" / "log"


def test_the_layout_on_disk_is_the_documented_one(tmp_path: Path):
    entries = [Sample(3, 10, 2, 100, 1, 7, 9), Sample(4, 0, 1, 61, 1, 5, 5)]

    info = write_segment(FILES, tmp_path, entries)

    data = (tmp_path / info.name).read_bytes()
    assert (HEADER.size, BLOCK.size, RECORD.size, TRAILER.size) == (64, 56, 120, 80)
    assert data[:64] == bytes.fromhex(
        "5452494c5345474d"  # magic TRILSEGM
        "0001 0040 0000 0000"  # version, header size, level, flags
        "0000000000000001 00000001 0000000000000007"  # segment, node, node epoch
        "000102030405060708090a0b0c0d0e0f"  # cluster
        "00000000000004d2 450ac8c7"  # created, crc
    )
    assert data[64:164] == entries[0].data
    assert data[164:225] == entries[1].data
    assert len(data) == 225 + 2 * 56 + 2 * 16 + 2 * 120 + 80
    assert data[-8:] == b"TRILSEGE"


def test_segment_info_describes_each_partition(tmp_path: Path):
    entries = [Sample(9, 5, 3, 100, 2, 30, 40), Sample(9, 8, 1, 70, 2, 20, 25)]

    info = write_segment(FILES, tmp_path, [*entries, *samples(4, 1, size=80)])

    assert info.partitions[9] == Extent(9, 5, 9, 144, 170, 2, 2, 20, 40, 5000, 5000)
    assert list(info.partitions) == [4, 9]
    assert info.data_size == 250
    assert info.size == (tmp_path / info.name).stat().st_size
    assert info.name == segment_name(1) == "0000000000000001.segment"


def test_small_blocks_are_written_together_and_large_ones_at_once(tmp_path: Path):
    sizes: list[int] = []
    file = FILES.open(tmp_path / "s", create=True)
    writer = SegmentWriter(file, SegmentHeader(1, 0, 1, 1, CLUSTER, 0), sizes.append)

    writer.begin(1, [EpochStart(1, 0)])
    for base in range(100):
        entry = Sample(1, base, 1, 30_000)
        writer.block(Block(base, base + 1, 1, 0, 0, 0, 0), entry.data)
    info = writer.finish("s", 1, 1)

    assert sum(sizes) == info.size
    assert len(sizes) == 3
    assert all(size < PIECE + 30_000 for size in sizes)
    file.close()


@pytest.mark.parametrize(
    ("blocks", "partition_ids"),
    [
        ([(0, 5), (4, 6)], [1]),  # overlap
        ([(5, 5)], [1]),  # no span
        ([(0, 1)], [2, 1]),  # partitions go back
        ([(0, 1)], [1, 1]),
        ([], [1, 2]),  # a partition without a block
    ],
)
def test_a_writer_stops_before_it_writes_what_no_reader_could_read(
    tmp_path: Path, blocks: list[tuple[int, int]], partition_ids: list[int]
):
    file = FILES.open(tmp_path / "s", create=True)
    writer = SegmentWriter(file, SegmentHeader(1, 0, 1, 1, CLUSTER, 0))

    def write() -> None:
        for partition_id in partition_ids:
            writer.begin(partition_id, [EpochStart(1, 0)])
            for base, end in blocks:
                writer.block(Block(base, end, 1, 0, 0, 0, 0), bytes(61))

    with pytest.raises(AssertionError):
        write()
    file.close()


def test_format_1_stays_as_it_was_first_written(tmp_path: Path):
    """A changed byte is a new format version: older files are on somebody's disk."""
    golden = bytes.fromhex((VECTORS / "segment-v1.hex").read_text())
    entries = [
        Sample(3, 10, 2, 64, 1, 7, 9),
        Sample(3, 20, 1, 61, 1, 8, 8),
        *samples(2**40, 1, size=70),
    ]

    info = write_segment(FILES, tmp_path, entries)

    assert (tmp_path / info.name).read_bytes() == golden
