"""Large reads: the right bytes wherever they begin and end, and memory that is used again."""

from __future__ import annotations

import errno
import random
from itertools import count
from pathlib import Path

import pytest

from tests.fakes import FakeFile, FakeFileSystem
from tests.log.samples import samples, write_segment
from trilogue.log.errors import CorruptLog
from trilogue.log.files import BLOCK, File, OsFileSystem
from trilogue.log.segments.large_reads import IDLE_TRIMS, LARGE_FROM, LargeReads
from trilogue.log.segments.segment_reader import SegmentReader, SegmentReaders

SIZE = 3_000_001
CONTENT = random.Random(7).randbytes(SIZE)
RANGES = ((0, SIZE), (1, LARGE_FROM + 1), (BLOCK, 2 * BLOCK), (12_345, 2_500_000), (SIZE - 9, SIZE))


class Files(OsFileSystem):
    """Knows how often a file was opened to be read directly."""

    __slots__ = ("direct",)

    def __init__(self) -> None:
        self.direct = 0

    def open_read(self, path: Path, *, direct: bool = False) -> File:
        self.direct += direct
        return super().open_read(path, direct=direct)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize(("start", "stop"), RANGES)
def test_bytes_are_those_of_the_file(path: Path, start: int, stop: int, direct: bool):
    files = OsFileSystem()
    file = files.open_read(path)

    found = LargeReads(files).read(file, start, stop, direct=direct)

    assert found.readonly
    assert found == CONTENT[start:stop]
    file.close()


@pytest.mark.parametrize("direct", [False, True])
def test_a_file_that_is_shorter_gives_what_it_has(path: Path, direct: bool):
    files = OsFileSystem()
    file = files.open_read(path)

    found = LargeReads(files).read(file, 2_999_000, 4_000_000, direct=direct)

    assert found == CONTENT[2_999_000:]
    file.close()


def test_memory_is_used_again_when_its_last_view_is_gone(path: Path):
    files = OsFileSystem()
    file = files.open_read(path)
    reads = LargeReads(files)
    first = reads.read(file, 0, 2_500_000, direct=True)
    part = first[7:9]
    del first
    assert reads.used_bytes >= 2_500_000

    del part
    again = reads.read(file, 5, 2_500_005, direct=False)

    assert reads.used_bytes < 5_000_000
    assert again == CONTENT[5:2_500_005]
    del again
    assert reads.used_bytes == 0
    file.close()


def test_unlinked_open_file_is_read(path: Path):
    files = OsFileSystem()
    file = files.open_read(path)
    path.unlink()

    assert LargeReads(files).read(file, 1, 999_999, direct=True) == CONTENT[1:999_999]
    file.close()


def test_refused_direct_read_falls_back_to_a_buffered_read():
    files = FakeFileSystem(direct=True)
    files.make_directory(Path("/d"))
    file = files.open(Path("/d/f"), create=True)
    file.inode.write(CONTENT, 0)
    refused = 0

    class Refusing(FakeFile):
        def read_into(self, room: memoryview, offset: int) -> int:
            nonlocal refused
            if self.direct:
                refused += 1
                raise OSError(errno.EINVAL, "not of this size")
            return super().read_into(room, offset)

    def opened(path: Path, *, direct: bool = False) -> FakeFile:
        return Refusing(files, path, file.inode, direct=direct, read_only=True)

    files.open_read = opened  # type: ignore[method-assign]
    reads = LargeReads(files)
    plain = files.open_read(Path("/d/f"))

    assert reads.read(plain, 1, 999_999, direct=True) == CONTENT[1:999_999]
    assert reads.read(plain, 1, 999_999, direct=True) == CONTENT[1:999_999]
    assert refused == 1  # then it is known


# ---- segments


@pytest.mark.parametrize(
    ("seconds_a_read", "expected"), [(1.0, [1, 2, 2, 2]), (0.0005, [1, 2, 3, 4])]
)
def test_a_block_of_a_slow_disk_is_read_past_the_page_cache_twice_and_then_through_it(
    tmp_path: Path, seconds_a_read: float, expected: list[int]
):
    files = Files()
    mine = samples(5, 60, size=10_000)
    info = write_segment(files, tmp_path, mine, entries_per_block=20)
    path = tmp_path / info.name
    ticks = count()
    large_reads = LargeReads(files, clock=lambda: next(ticks) * seconds_a_read)
    reader = SegmentReader(files.open_read(path), path, info, large_reads)
    opened = []

    for _ in range(4):
        assert reader.read(5, 0, 1 << 20) == b"".join(each.data for each in mine)
        opened.append(files.direct)

    assert opened == expected
    reader.close()


def test_one_slow_read_does_not_make_a_fast_disk_slow(path: Path):
    times = iter([0.0, 0.001, 1.0, 2.0, *(3.0 + n for n in range(10_000))])
    files = OsFileSystem()
    file = files.open_read(path)
    reads = LargeReads(files, clock=lambda: next(times))

    reads.read(file, 0, 2_500_000, direct=True)
    assert reads.is_disk_fast
    reads.read(file, 0, 2_500_000, direct=True)
    assert reads.is_disk_fast
    for _ in range(500):
        reads.read(file, 0, 600_000, direct=True)

    assert not reads.is_disk_fast
    file.close()


def test_memory_goes_to_the_system_when_nothing_was_read_for_a_while(path: Path):
    files = OsFileSystem()
    file = files.open_read(path)
    reads = LargeReads(files)
    reads.read(file, 0, 2_500_000, direct=True)
    pooled = reads.pooled_bytes
    assert pooled >= 2_500_000

    for _ in range(IDLE_TRIMS):
        reads.trim()
    assert reads.pooled_bytes == pooled
    for _ in range(4):
        reads.trim()

    assert reads.pooled_bytes == 0
    file.close()


def test_a_small_read_leaves_the_rest_to_the_page_cache(tmp_path: Path):
    files = Files()
    info = write_segment(files, tmp_path, samples(5, 60, size=10_000), entries_per_block=40)
    readers = SegmentReaders(files, tmp_path)

    assert len(readers.read(info, 5, 0, 50_000)) == 50_000

    assert files.direct == 0
    readers.close()


def test_failed_large_read_raises_corrupt_log_and_can_be_retried():
    files = FakeFileSystem(direct=True)
    files.make_directory(Path("/d"))
    mine = samples(5, 60, size=10_000)
    info = write_segment(files, Path("/d"), mine, entries_per_block=20)
    large_reads = LargeReads(files)
    path = Path("/d") / info.name
    reader = SegmentReader(files.open_read(path), path, info, large_reads)
    reader.read(5, 0, 1)  # the footer is read
    files.fail("read")

    with pytest.raises(CorruptLog, match="cannot be read"):
        reader.read(5, 0, 1 << 20)

    assert reader.read(5, 0, 1 << 20) == b"".join(each.data for each in mine)


def test_a_flipped_bit_is_seen_past_the_page_cache():
    files = FakeFileSystem(direct=True)
    files.make_directory(Path("/d"))
    info = write_segment(files, Path("/d"), samples(5, 60, size=10_000), entries_per_block=20)
    path = Path("/d") / info.name
    files.flip(path, 300_000, 3)
    reader = SegmentReader(files.open_read(path), path, info, LargeReads(files))

    with pytest.raises(CorruptLog, match="checksum"):
        reader.read(5, 0, 1 << 20)
