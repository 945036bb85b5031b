"""What a merge keeps: every entry worth keeping, to the byte, in few large blocks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes import FakeFileSystem
from tests.log.jobs.merging import (
    HOME,
    KIB,
    Disk,
    blocks,
    job,
    joined,
    put,
    read_all,
    rows,
)
from tests.log.samples import Sample, logs, samples
from trilogue.entry.checksum import crc32c
from trilogue.log.files import OsFileSystem
from trilogue.log.jobs.merge import merge, run
from trilogue.log.jobs.pace import SYNC_SIZE
from trilogue.log.segments.segment import (
    BLOCK_TARGET,
    OPEN,
    AbortedTransaction,
)
from trilogue.log.segments.segment_info import (
    MergeResult,
    SegmentInfo,
    without,
)

# ── what is kept ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.full
@settings(deadline=None, max_examples=25)
@given(entries=logs(partitions=5, entries=40), data=st.data())
def test_every_offset_reads_the_same_after_a_merge(entries: list[Sample], data: st.DataObject):
    """Whatever lay where, however large, and whatever the outputs are cut at."""
    direct = data.draw(st.booleans())
    cuts = sorted(data.draw(st.sets(st.integers(1, len(entries)), max_size=6)))
    flushes = [
        entries[a:b] for a, b in zip([0, *cuts], [*cuts, len(entries)], strict=True) if a < b
    ]
    disk = Disk(*flushes, direct=direct, per_block=data.draw(st.integers(1, 5)))
    ids = {entry.partition_id for entry in entries}
    starts = {each: data.draw(st.sampled_from([0, 0, 3, 60])) for each in ids}

    result = disk.merge(
        starts=starts,
        own_bytes=data.draw(st.sampled_from([1, 5_000, 1 << 40])),
        target_bytes=data.draw(st.sampled_from([1, 5_000, 200_000, 1 << 40])),
    )

    assert not result.left
    for partition_id in ids:
        mine = [entry for entry in entries if entry.partition_id == partition_id]
        for offset in {starts[partition_id], *(e.base for e in mine), *(e.end for e in mine)}:
            if offset >= starts[partition_id]:
                expected = joined(mine, offset)
                assert disk.read(result.added, partition_id, offset) == expected
                with_time = first_with_time(disk, result.added, partition_id, offset)
                assert with_time == first_with_time(disk, disk.inputs, partition_id, offset)
    check_totals(disk, result)


def first_with_time(
    disk: Disk, infos: Iterable[SegmentInfo], partition_id: int, offset: int
) -> bytes | None:
    """The first entry from an offset on that may have a message of the year's first second."""
    mine = [info for info in infos if partition_id in info.partitions]
    for info in sorted(mine, key=lambda info: info.partitions[partition_id].base_offset):
        reader = disk.reader(info)
        found = reader.entry_for_time(partition_id, 1_000, offset)
        if found is not None:
            return bytes(found)
    return None


def check_totals(disk: Disk, result: MergeResult) -> None:
    """The receipt, and what a start believes without opening a segment."""
    for info in result.added:
        reader = disk.reader(info)
        assert dict(reader.extents) == dict(info.partitions)
        reader.close()
        assert (info.first_sequence, info.last_sequence) == (1, len(disk.inputs))
        assert info.level == 1
        assert info.size == disk.files.names[HOME / info.name].data.__len__()
    assert result.bytes_written == sum(info.size for info in result.added)
    kept = sum(info.data_size for info in result.added)
    assert result.dead_bytes == sum(info.data_size for info in disk.inputs) - kept
    assert result.entries == sum(
        extent.entry_count for info in result.added for extent in info.partitions.values()
    )


def test_inputs_may_come_in_any_order():
    """Of small segments that were merged before, the older one need not have the older entries."""
    disk = Disk(*(samples(1, 4, base=4 * at) for at in range(4)))
    disk.inputs = [disk.inputs[at] for at in (2, 0, 3, 1)]

    result = disk.merge()

    assert not result.left
    assert disk.read(result.added, 1) == joined(samples(1, 16))


def test_small_blocks_of_a_partition_become_one():
    flushes = [samples(7, 20, base=20 * at, size=300) for at in range(12)]
    disk = Disk(*flushes)

    (made,) = disk.merge().added

    assert blocks(disk, made, 7) == [(0, 12 * 20 * 300)]


def test_blocks_are_joined_up_to_the_target_and_no_further():
    size = 100 * KIB
    disk = Disk(samples(7, 6, size=size), per_block=1)

    (made,) = disk.merge().added

    assert BLOCK_TARGET // size == 2
    assert blocks(disk, made, 7) == [(0, 2 * size), (2, 2 * size), (4, 2 * size)]


def test_blocks_that_are_large_already_are_copied_as_they_are():
    sizes = [200 * KIB, 3 << 20, 200 * KIB]
    entries = [Sample(7, at, size=size) for at, size in enumerate(sizes)]
    disk = Disk(entries[:2], entries[2:], per_block=1, direct=True)

    (made,) = disk.merge().added

    assert blocks(disk, made, 7) == list(enumerate(sizes))
    assert disk.read([made], 7) == joined(entries)


def test_a_large_partition_gets_segments_of_its_own():
    large = samples(5, 100, size=2_000)
    small = [*samples(3, 5), *samples(9, 5)]
    disk = Disk([*small, *large[:50]], [*large[50:], *samples(4, 5)], per_block=5)

    result = disk.merge(own_bytes=200_000, target_bytes=60_000)

    assert [sorted(info.partitions) for info in result.added] == [[3, 4, 9], *[[5]] * 4]
    assert [info.data_size for info in result.added[1:]] == [60_000, 60_000, 60_000, 20_000]
    assert disk.read(result.added, 5) == joined(large)


def test_a_shared_segment_ends_with_the_partition_that_reaches_the_target():
    entries = [entry for each in range(1, 7) for entry in samples(each, 10, size=1_000)]
    disk = Disk(entries)

    result = disk.merge(target_bytes=15_000)

    assert [sorted(info.partitions) for info in result.added] == [[1, 2], [3, 4], [5, 6]]


def test_merge_drops_entries_below_the_start_offset():
    disk = Disk([*samples(1, 10), *samples(2, 10)], [*samples(1, 10, base=10), *samples(3, 10)])

    result = disk.merge(starts={1: 7, 2: 10})

    (made,) = result.added
    assert sorted(made.partitions) == [1]
    assert made.partitions[1].base_offset == 6  # the block that has 7
    assert disk.read([made], 1, 7) == joined(samples(1, 20), 7)
    assert result.dead_bytes == (6 + 10 + 10) * 168


def test_partitions_that_a_segment_counts_no_more_for_are_not_brought_back():
    disk = Disk([*samples(1, 10), *samples(2, 10)], samples(2, 5, base=10))
    disk.inputs[0] = without(disk.inputs[0], [2])

    (made,) = disk.merge(starts={1: 0, 2: 0}).added

    assert made.partitions[2].base_offset == 10
    assert disk.read([made], 2) == joined(samples(2, 5, base=10))


def test_where_nothing_is_worth_keeping_no_file_is_made():
    disk = Disk(samples(1, 10), samples(2, 10))

    result = disk.merge(starts={1: 10})

    assert result.added == ()
    assert disk.names() == [each.name for each in disk.inputs]


def test_times_are_those_of_the_inputs():
    early, late = Sample(1, 0, base_ms=5, max_ms=7), Sample(1, 1, base_ms=3, max_ms=9)
    disk = Disk([early], [late])

    (made,) = disk.merge().added

    extent = made.partitions[1]
    assert (extent.min_event_ms, extent.max_event_ms) == (3, 9)
    assert (extent.min_append_ms, extent.max_append_ms) == (5_001, 5_002)


# ── epochs and transactions ───────────────────────────────────────────────────────────────────


def test_starts_of_owner_epochs_are_carried_over():
    first = [*samples(1, 3), *(replace(each, epoch=2) for each in samples(1, 3, base=3))]
    second = [replace(each, epoch=2) for each in samples(1, 3, base=6)]
    third = [replace(each, epoch=5) for each in samples(1, 3, base=9)]
    disk = Disk(first, second, third)

    whole = disk.merge()
    cut = disk.merge(starts={1: 4}, target_bytes=168 * 4, own_bytes=1, first_id=200)

    (made,) = whole.added
    assert disk.reader(made).epochs(1) == [(1, 0), (2, 3), (5, 9)]
    assert made.partitions[1].owner_epoch == 5
    assert [disk.reader(each).epochs(1) for each in cut.added] == [
        [(2, 3)],
        [(5, 9)],
    ]


def test_aborted_transactions_are_carried_over_where_they_matter():
    """A row stands where the marker is; one that ends behind a segment is open there."""
    files = FakeFileSystem()
    files.make_directory(HOME)
    long_ago = AbortedTransaction(9, 0, 2, 3)
    across = AbortedTransaction(8, 4, 7, 8)
    late = AbortedTransaction(9, 8, 9, 10)
    first = [long_ago, across._replace(last_offset=OPEN)]
    inputs = [
        put(files, HOME, 1, samples(1, 5), per_block=1, aborted={1: first}),
        put(files, HOME, 2, samples(1, 5, base=5), per_block=1, aborted={1: [across, late]}),
    ]

    (made,) = merge(job(inputs, starts={1: 3}), files).added
    again = job(inputs, starts={1: 3}, own_bytes=1, target_bytes=3 * 168, first_id=200)
    cut = merge(again, files).added

    assert [rows(files, each, 1) for each in (made, *cut)] == [
        [across, late],
        [across._replace(last_offset=OPEN)],  # offsets 3 to 5
        [across, late._replace(last_offset=OPEN)],  # 6 to 8
        [late],  # 9
    ]


# ── the work itself ───────────────────────────────────────────────────────────────────────────


def test_a_paced_merge_keeps_to_its_rate_and_syncs_on_the_way():
    disk = Disk(samples(1, 300, size=64 * KIB), per_block=4)
    syncs = disk.files.counts["sync"]
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    paced = replace(job(disk.inputs), bytes_per_second=1 << 20)
    result = merge(paced, disk.files, monotonic=lambda: clock[0], sleep=sleep)

    assert clock[0] >= result.bytes_written / (1 << 20) * 0.99
    assert disk.files.counts["sync"] - syncs >= result.bytes_written // (SYNC_SIZE + (1 << 20))


def test_every_byte_is_read_about_once():
    flushes = [
        [e for each in range(1, 200) for e in samples(each, 2, base=2 * at, size=5_000)]
        + samples(900, 24, base=24 * at, size=250 * KIB)
        for at in range(3)
    ]
    disk = Disk(*flushes, per_block=1, direct=True)
    reads = disk.files.counts.get("read", 0)

    result = disk.merge()

    assert result.bytes_read < 1.05 * sum(info.size for info in disk.inputs)
    assert disk.files.counts["read"] - reads <= 3 * 12


def test_checksums_are_combined_and_not_recomputed(monkeypatch: pytest.MonkeyPatch):
    """Each byte of an entry is walked once."""
    walked = 0

    def counting(data: bytes, value: int = 0) -> int:
        nonlocal walked
        walked += len(data)
        return crc32c(data, value)

    disk = Disk(*(samples(1, 20, base=20 * at, size=3_000) for at in range(8)))
    for module in ("jobs.merge", "segments.merge_input", "segments.segment"):
        monkeypatch.setattr(f"trilogue.log.{module}.crc32c", counting)
    disk.merge()

    assert walked < 1.1 * 8 * 20 * 3_000


@pytest.mark.parametrize("direct", [False, True])
def test_it_runs_on_real_files(direct: bool):
    files = OsFileSystem()
    with TemporaryDirectory() as name:
        home = Path(name)
        inputs = [
            put(
                files,
                home,
                at + 1,
                [*samples(1, 50, base=50 * at, size=9_000), *samples(2 + at, 3)],
            )
            for at in range(3)
        ]

        result = run(replace(job(inputs, home), direct=direct))

        assert read_all(files, home, result.added, 1) == joined(samples(1, 150, size=9_000))
        assert read_all(files, home, result.added, 4) == joined(samples(4, 3))
