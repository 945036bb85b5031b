"""What a segment gives back: whole entries from the right one on, or an error, never else."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.log.samples import Sample, logs, samples, write_segment
from tests.sharing import seeds
from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.log.files import OsFile, OsFileSystem
from trilogue.log.segments import segment_footer
from trilogue.log.segments.segment import HEADER, HEADER_CHECKED, TRAILER, TRAILER_CHECKED, crc32c
from trilogue.log.segments.segment_info import SegmentInfo, segment_name
from trilogue.log.segments.segment_reader import SegmentReader, SegmentReaders

FILES = OsFileSystem()


class CountingFile(OsFile):
    files: CountingFiles

    def pread(self, size: int, offset: int) -> bytes:
        self.files.bytes_read += size
        return super().pread(size, offset)


class CountingFiles(OsFileSystem):
    """Knows how many files are open and how much was read."""

    def __init__(self) -> None:
        self.opened: list[CountingFile] = []
        self.bytes_read = 0

    def open_read(self, path, *, direct=False):
        file = CountingFile(path, os.open(path, os.O_RDONLY), direct=False)
        file.files = self
        self.opened.append(file)
        return file

    @property
    def now_open(self) -> int:
        return sum(file.fileno() >= 0 for file in self.opened)


def by_partition(entries: list[Sample]) -> dict[int, list[Sample]]:
    found: dict[int, list[Sample]] = {}
    for entry in entries:
        found.setdefault(entry.partition_id, []).append(entry)
    return found


def expected_read(entries: list[Sample], offset: int, max_bytes: int) -> list[bytes]:
    """The model: the first entry that ends after the offset, and what follows while it fits."""
    rest = [entry.data for entry in entries if entry.end > offset]
    taken = rest[:1]
    for data in rest[1:]:
        if sum(map(len, taken)) + len(data) > max_bytes:
            break
        taken.append(data)
    return taken


@settings(deadline=None)
@given(entries=logs(), per_block=st.integers(1, 6), data=st.data())
def test_reads_are_those_of_a_plain_list(
    entries: list[Sample], per_block: int, data: st.DataObject
):
    """Wherever readers begin, and wherever they go on."""
    with TemporaryDirectory() as name:
        info = write_segment(FILES, Path(name), entries, entries_per_block=per_block)
        reader = SegmentReader.open(FILES, Path(name) / info.name, info)
        for partition_id, mine in by_partition(entries).items():
            for _ in range(3):
                offset = data.draw(st.integers(0, mine[-1].end + 2))
                for _ in range(4):
                    max_bytes = data.draw(st.sampled_from([0, 61, 200, 1_000, 300_000, 1 << 30]))

                    found = bytes(reader.read(partition_id, offset, max_bytes))

                    offset = check_read(mine, offset, max_bytes, found)
        reader.close()


def check_read(entries: list[Sample], offset: int, max_bytes: int, found: bytes) -> int:
    """Whole entries, the right ones, at least half of what fits; return where to go on."""
    rest = [entry for entry in entries if entry.end > offset]
    most = expected_read(entries, offset, max_bytes)
    taken = 0
    while sum(entry.size for entry in rest[:taken]) < len(found):
        taken += 1
    assert found == b"".join(entry.data for entry in rest[:taken])
    assert min(len(most), 1) <= taken <= len(most)
    assert taken == len(most) or len(found) >= max_bytes // 2
    return rest[taken - 1].end if taken else offset


@pytest.mark.parametrize("max_bytes", [1, 168, 500, 168 * 7, 168 * 40, 1 << 20])
def test_reading_on_and_on_gives_everything_once(tmp_path: Path, max_bytes: int):
    mine = samples(5, 40, span=3)
    info = write_segment(FILES, tmp_path, [*samples(4, 9), *mine, *samples(6, 9)])
    reader = SegmentReader.open(FILES, tmp_path / info.name, info)
    offset, found = 0, b""

    while chunk := reader.read(5, offset, max_bytes):
        assert len(chunk) % 168 == 0
        found += chunk
        offset += len(chunk) // 168 * 3

    assert found == b"".join(entry.data for entry in mine)
    reader.close()


def test_a_read_ends_with_a_block_where_that_is_enough(tmp_path: Path):
    info = write_segment(FILES, tmp_path, samples(5, 1000, size=1000), entries_per_block=100)
    reader = SegmentReader.open(FILES, tmp_path / info.name, info)

    sizes = [len(reader.read(5, at, 250_000)) for at in (0, 50, 99, 100, 720, 999)]
    small = [len(reader.read(5, at, 30_000)) for at in (0, 30, 60, 90)]

    assert sizes == [200_000, 250_000, 201_000, 200_000, 180_000, 1000]
    assert small == [30_000, 30_000, 30_000, 30_000]
    reader.close()


def test_a_reader_that_goes_on_reads_little_more_than_it_gets(tmp_path: Path):
    files = CountingFiles()
    entries = samples(5, 1000, size=200)
    info = write_segment(FILES, tmp_path, entries, entries_per_block=500)
    reader = SegmentReader.open(files, tmp_path / info.name, info)
    reader.read(5, 0, 1 << 20)  # verifies
    files.bytes_read = 0

    for offset in range(0, 1000, 50):
        assert len(reader.read(5, offset, 10_000)) == 10_000

    assert files.bytes_read == 200_000
    reader.close()


def test_an_offset_inside_an_entry_gives_that_entry(tmp_path: Path):
    info = write_segment(FILES, tmp_path, [Sample(1, 10, 5, 100), Sample(1, 15, 5, 100)])
    reader = SegmentReader.open(FILES, tmp_path / info.name, info)

    assert bytes(reader.read(1, 17, 1)) == Sample(1, 15, 5, 100).data
    reader.close()


def test_an_offset_in_a_hole_gives_what_follows(tmp_path: Path):
    entries = [Sample(1, 10), Sample(1, 20), Sample(1, 30)]
    info = write_segment(FILES, tmp_path, entries, entries_per_block=2)
    reader = SegmentReader.open(FILES, tmp_path / info.name, info)

    assert [bytes(reader.read(1, at, 1)) for at in (0, 11, 21, 31)] == [
        entries[0].data,
        entries[1].data,
        entries[2].data,
        b"",
    ]
    reader.close()


def test_a_partition_that_is_not_there_gives_nothing(tmp_path: Path):
    info = write_segment(FILES, tmp_path, samples(5, 3))
    reader = SegmentReader.open(FILES, tmp_path / info.name, info)

    assert bytes(reader.read(4, 0, 1000)) == b""
    assert reader.entry_for_time(4, 0) is None
    assert reader.epochs(4) == reader.aborted(4) == []
    reader.close()


@settings(deadline=None)
@given(entries=logs(partitions=2), time=st.integers(-2, 2002), data=st.data())
def test_the_entry_for_a_time_is_the_first_not_earlier(
    entries: list[Sample], time: int, data: st.DataObject
):
    with TemporaryDirectory() as name:
        info = write_segment(FILES, Path(name), entries, entries_per_block=3)
        reader = SegmentReader.open(FILES, Path(name) / info.name)
        for partition_id, mine in by_partition(entries).items():
            start = data.draw(st.integers(0, mine[-1].end + 1))

            found = reader.entry_for_time(partition_id, time, start)

            fitting = [e.data for e in mine if e.max_ms >= time and e.end > start]
            assert (None if found is None else bytes(found)) == (fitting[0] if fitting else None)
        reader.close()


def test_the_slots_for_epochs_and_aborted_transactions_come_back(tmp_path: Path):
    info = write_segment(FILES, tmp_path, [Sample(1, 3, epoch=4)])
    reader = SegmentReader.open(FILES, tmp_path / info.name, info)

    assert reader.epochs(1) == [(4, 3)]
    assert reader.aborted(1) == []
    assert reader.header.node_epoch == 7
    reader.close()


# ── damage ────────────────────────────────────────────────────────────────────────────────────


def read_all(directory: Path, info: SegmentInfo | None, name: str) -> dict[int, bytes | None]:
    """Each partition's bytes, None where reading it is an error."""
    found: dict[int, bytes | None] = {}
    try:
        reader = SegmentReader.open(FILES, directory / name, info)
    except (CorruptLog, NewerFormat):
        return dict.fromkeys((1, 2, 3))
    for partition_id in (1, 2, 3):
        try:
            found[partition_id] = bytes(reader.read(partition_id, 0, 1 << 30))
        except CorruptLog:
            found[partition_id] = None
    reader.close()
    return found


@pytest.mark.parametrize("seed", seeds(100, quick=40))
@pytest.mark.parametrize("known", [True, False])
def test_a_flipped_bit_costs_its_partition_and_is_never_served(
    tmp_path: Path, seed: int, known: bool
):
    entries = [entry for each in (1, 2, 3) for entry in samples(each, 30, size=400)]
    info = write_segment(FILES, tmp_path, entries)
    path = tmp_path / info.name
    intact = read_all(tmp_path, info, info.name)
    data = bytearray(path.read_bytes())
    bit = random.Random(seed).randrange(len(data) * 8)

    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)

    found = read_all(tmp_path, info if known else None, info.name)
    errors = [each for each in found if found[each] is None]
    assert all(found[each] == intact[each] for each in found if each not in errors)
    for extent in info.partitions.values():
        if extent.position <= bit // 8 < extent.position + extent.size:
            assert errors == [extent.partition_id]
    assert errors


def test_every_byte_of_a_segment_is_under_some_checksum(tmp_path: Path):
    info = write_segment(FILES, tmp_path, [*samples(1, 2, size=70), *samples(3, 1, size=64)])
    path = tmp_path / info.name
    data = path.read_bytes()

    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])

        assert None in read_all(tmp_path, None, info.name).values(), at


def test_of_many_partitions_only_some_indexes_stay_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(segment_footer, "INDEXES_MAX", 2)
    entries = [entry for each in range(1, 8) for entry in samples(each, 3)]
    write_segment(FILES, tmp_path, entries, segment_id=1)
    with closing(SegmentReader.open(FILES, tmp_path / segment_name(1))) as reader:
        for each in (*range(1, 8), *range(1, 8)):
            found = bytes(reader.read(each, 0, 1 << 20))
            assert found == b"".join(entry.data for entry in samples(each, 3))
            assert len(reader._footer._indexes) <= 2


def test_a_damaged_block_leaves_the_partitions_other_blocks_readable(tmp_path: Path):
    info = write_segment(FILES, tmp_path, samples(1, 10), entries_per_block=5)
    path = tmp_path / info.name
    data = bytearray(path.read_bytes())
    data[64 + 7] ^= 1  # in the first entry's base offset, which no entry checksum covers

    path.write_bytes(data)

    reader = SegmentReader.open(FILES, path, info)
    with pytest.raises(CorruptLog, match=r"checksum.*at byte 64"):
        reader.read(1, 0, 1000)
    with pytest.raises(CorruptLog, match="checksum"):
        reader.entry_for_time(1, 0)
    assert bytes(reader.read(1, 5, 168)) == samples(1, 10)[5].data
    reader.close()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 143, 144, 900, -200, -80, -79, -1])
def test_a_cut_segment_is_refused_clearly(tmp_path: Path, size: int):
    info = write_segment(FILES, tmp_path, samples(1, 10))
    data = (tmp_path / info.name).read_bytes()

    (tmp_path / info.name).write_bytes(data[:size])

    for known in (info, None):
        with pytest.raises(CorruptLog, match=info.name):
            SegmentReader.open(FILES, tmp_path / info.name, known)


def test_a_missing_segment_is_an_error_that_names_it(tmp_path: Path):
    with pytest.raises(CorruptLog, match=r"missing.*7\.segment"):
        SegmentReader.open(FILES, tmp_path / "7.segment")


def test_a_newer_format_is_refused_as_such(tmp_path: Path):
    info = write_segment(FILES, tmp_path, samples(1, 1))
    data = (tmp_path / info.name).read_bytes()
    head = data[:9] + b"\x02" + data[10:HEADER_CHECKED]
    head += crc32c(head).to_bytes(4, "big")
    tail = data[-TRAILER.size :][: TRAILER_CHECKED - 1] + b"\x02"
    tail += crc32c(tail).to_bytes(4, "big") + data[-8:]

    for changed in (head + data[HEADER.size :], data[: -TRAILER.size] + tail):
        (tmp_path / info.name).write_bytes(changed)
        with pytest.raises(NewerFormat, match="format 2"):
            SegmentReader.open(FILES, tmp_path / info.name, info)


@pytest.mark.parametrize(
    "other", [{"segment_id": 2}, {"node_epoch": 6}, {"last_sequence": 9}, {"size": 1}]
)
def test_a_file_that_is_not_the_one_recorded_is_refused(tmp_path: Path, other: dict[str, int]):
    """So is what an older owner of the data wrote late, under a name that came to be used."""
    info = write_segment(FILES, tmp_path, samples(1, 1))

    with pytest.raises(CorruptLog):
        SegmentReader.open(FILES, tmp_path / info.name, replace(info, **other))


# ── handles ───────────────────────────────────────────────────────────────────────────────────


def some_segments(directory: Path, count: int) -> list[SegmentInfo]:
    return [
        write_segment(FILES, directory, samples(1, 5, base=each * 10), segment_id=each + 1)
        for each in range(count)
    ]


def test_only_so_many_segments_stay_open(tmp_path: Path):
    files = CountingFiles()
    readers = SegmentReaders(files, tmp_path, limit=3)
    infos = some_segments(tmp_path, 8)

    for info in infos * 2:
        assert len(readers.read(info, 1, 0, 1)) == 168

    assert files.now_open == 3
    readers.close()
    assert files.now_open == 0


def test_a_segment_in_use_is_closed_when_its_reader_is_done(tmp_path: Path):
    files = CountingFiles()
    readers = SegmentReaders(files, tmp_path, limit=1)
    first, second = some_segments(tmp_path, 2)

    with readers.lease(first) as reader:
        readers.read(second, 1, 0, 1)
        readers.forget(second.segment_id)
        readers.forget(first.segment_id)
        readers.close()

        assert bytes(reader.read(1, 0, 1)) == samples(1, 1)[0].data
        assert files.now_open == 1
    assert files.now_open == 0


def test_threads_share_the_open_segments(tmp_path: Path):
    files = CountingFiles()
    readers = SegmentReaders(files, tmp_path, limit=2)
    infos = some_segments(tmp_path, 4)
    wrong: list[int] = []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(200):
            number = dice.randrange(4)
            expected = samples(1, 1, base=number * 10)[0].data
            if bytes(readers.read(infos[number], 1, number * 10, 1)) != expected:
                wrong.append(number)

    threads = [Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert files.now_open == 2
    readers.close()
