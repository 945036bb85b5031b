"""What a merge keeps: every entry worth keeping, to the byte, and every error where it was."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import FakeFileSystem, PowerCut
from tests.log.samples import CLUSTER, Sample, logs, samples
from trilogue.entry.checksum import crc32c
from trilogue.log.errors import CorruptLog
from trilogue.log.files import FileSystem, OsFileSystem
from trilogue.log.merge import merge, run
from trilogue.log.pace import SYNC_SIZE
from trilogue.log.segment import (
    BLOCK_TARGET,
    OPEN,
    AbortedTransaction,
    Block,
    EpochStart,
    SegmentHeader,
    SegmentWriter,
)
from trilogue.log.segment_info import (
    MergeJob,
    MergeResult,
    SegmentInfo,
    segment_name,
    without,
)
from trilogue.log.segment_reader import SegmentReader

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
    """What the index says of transactions, also of those that go on behind the segment."""
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


# ── what is kept ──────────────────────────────────────────────────────────────────────────────


@settings(deadline=None, max_examples=60)
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


def test_what_nobody_may_read_any_more_goes():
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


# ── damage ────────────────────────────────────────────────────────────────────────────────────


def damage(disk: Disk, info: SegmentInfo, position: int) -> None:
    disk.files.flip(HOME / info.name, position, 3)


def test_a_damaged_block_stays_an_error_for_itself_alone():
    """Its neighbours are joined without it, and no checksum is made that fits wrong bytes."""
    entries = samples(1, 20)
    disk = Disk(entries[:10], [*entries[10:], *samples(2, 5)], per_block=2)
    extent = disk.inputs[0].partitions[1]
    damage(disk, disk.inputs[0], extent.position + 2 * 2 * 168 + 100)  # offsets 4 and 5

    result = disk.merge()

    (made,) = result.added
    assert result.damaged_blocks == 1
    reader = disk.reader(made)
    for offset in (4, 5):
        with pytest.raises(CorruptLog, match="does not match its checksum"):
            reader.read(1, offset, 1)
    for entry in entries:
        if entry.base not in (4, 5):
            assert reader.read(1, entry.base, 168) == entry.data
    assert disk.read([made], 2) == joined(samples(2, 5))


def test_a_large_damaged_block_keeps_the_checksum_it_should_have_had():
    disk = Disk([Sample(1, 0, size=300 * KIB)], [Sample(1, 1, size=300 * KIB)], per_block=1)
    damage(disk, disk.inputs[0], disk.inputs[0].partitions[1].position + 200 * KIB)

    result = disk.merge()

    assert result.damaged_blocks == 1
    reader = disk.reader(result.added[0])
    with pytest.raises(CorruptLog):
        reader.read(1, 0, 1)
    assert reader.read(1, 1, 1) == Sample(1, 1, size=300 * KIB).data


@pytest.mark.parametrize("part", ["section", "record"])
@pytest.mark.parametrize("at", [3, 20, 50, 70])
def test_a_partition_whose_index_is_damaged_stays_in_all_inputs(part: str, at: int):
    """Nobody can tell how its bytes are to be read; moved in part it would lie over itself."""
    disk = Disk(*([*samples(1, 3, base=at), *samples(2, 3, base=at)] for at in (0, 3, 6)))
    hurt = disk.inputs[1]
    last_record = hurt.size - 80 - 120
    damage(disk, hurt, (hurt.footer_position if part == "section" else last_record) + at)
    victim, other = (1, 2) if part == "section" else (2, 1)

    result = disk.merge()

    swap = result.swap(job(disk.inputs))
    assert result.left == {1: (victim,), 2: (victim,), 3: (victim,)}
    assert [sorted(each.partitions) for each in result.added] == [[other]]
    assert disk.read(result.added, other) == joined(samples(other, 9))
    assert swap.removed == ()
    assert [(*each.partitions, *each.hidden) for each in swap.changed] == [(victim, other)] * 3
    assert result.dead_bytes == 0


@pytest.mark.parametrize("position", [3, 20, -5, -50])
def test_a_damaged_header_or_trailer_names_its_file(position: int):
    disk = Disk(samples(1, 3), samples(1, 3, base=3))
    damage(disk, disk.inputs[1], position % disk.inputs[1].size)

    with pytest.raises(CorruptLog) as caught:
        disk.merge()

    assert caught.value.path == HOME / disk.inputs[1].name
    assert len(disk.names()) == 2


def test_a_missing_input_names_its_file():
    disk = Disk(samples(1, 3), samples(1, 3, base=3))
    disk.files.unlink(HOME / disk.inputs[0].name)

    with pytest.raises(CorruptLog) as caught:
        disk.merge()

    assert caught.value.path == HOME / disk.inputs[0].name


def test_a_disk_that_cannot_read_an_input_costs_what_a_damaged_one_costs():
    disk = Disk(samples(1, 3), samples(1, 3, base=3))
    disk.files.fail("read")

    with pytest.raises(CorruptLog) as caught:
        disk.merge()

    assert caught.value.path == HOME / disk.inputs[0].name


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_flipped_bit_is_never_carried_under_a_checksum_that_fits(data: st.DataObject):
    """Wherever it is: the merge fails by name, or each entry reads as it was, or as an error."""
    entries = [entry for each in (1, 2, 3) for entry in samples(each, 12, size=200)]
    halves = [[e for e in entries if (e.base < 6) is first] for first in (True, False)]
    disk = Disk(*halves, per_block=2)
    hurt = disk.inputs[data.draw(st.integers(0, 1))]
    damage(disk, hurt, data.draw(st.integers(0, hurt.size - 1)))
    try:
        result = disk.merge()
    except CorruptLog as error:
        assert error.path == HOME / hurt.name  # noqa: PT017 -- both ends are right
        return

    swap, wrong = result.swap(job(disk.inputs)), 0
    for entry in entries:
        holders = [
            info
            for info in (*swap.added, *swap.changed)
            if entry.partition_id in info.partitions
            and info.partitions[entry.partition_id].base_offset <= entry.base
            and entry.base < info.partitions[entry.partition_id].end_offset
        ]
        assert len(holders) == 1
        try:
            assert disk.reader(holders[0]).read(entry.partition_id, entry.base, 200) == entry.data
        except CorruptLog:
            wrong += 1
    assert wrong <= 6  # of one partition in one input


# ── failures and crashes ──────────────────────────────────────────────────────────────────────

LARGE = [*samples(1, 30, size=9_000), *samples(2, 3)]


def outputs(disk: Disk) -> list[str]:
    return [name for name in disk.names() if name not in {each.name for each in disk.inputs}]


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("operation", ["create", "write", "sync", "sync_directory"])
def test_a_merge_that_fails_leaves_nothing_behind(operation: str, direct: bool):
    """Whichever call of its kind it is that fails; in the end one is not hit and it succeeds."""
    for number in range(100):
        disk = Disk(LARGE, samples(2, 9, base=3), direct=direct)
        before = {each.name: bytes(disk.files.read(HOME / each.name)) for each in disk.inputs}
        fail_the_nth(disk.files, operation, number)
        try:
            result = disk.merge(own_bytes=100_000, target_bytes=150_000)
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 -- until it succeeds
            assert outputs(disk) == []
        else:
            assert outputs(disk) == [each.name for each in result.added]
            assert number > 0
            break
        assert {name: disk.files.read(HOME / name) for name in before} == before
    else:
        pytest.fail("it never succeeded")


def fail_the_nth(files: FakeFileSystem, operation: str, number: int) -> None:
    step, seen = files.step, 0

    def counting(which: str, file: object = None) -> None:
        nonlocal seen
        if which == operation:
            seen += 1
            if seen == number + 1:
                raise OSError(errno.ENOSPC, "full")
        step(which, file)  # type: ignore[arg-type]

    files.step = counting  # type: ignore[method-assign]


def test_a_power_cut_at_any_step_leaves_nothing_but_orphans():
    for steps in range(200):
        disk = Disk(LARGE, samples(2, 9, base=3), direct=True)
        for info in disk.inputs:
            disk.files.names[HOME / info.name].persist()
        disk.files.cut_after(steps)
        try:
            result = disk.merge(own_bytes=100_000, target_bytes=150_000)
        except PowerCut:
            disk.files.power_cut(Random(steps))
        else:
            disk.files.power_cut(Random(steps))
            assert outputs(disk) == [each.name for each in result.added]
            assert disk.read(result.added, 1) == joined(samples(1, 30, size=9_000))
            return
        assert disk.read(disk.inputs, 1) == joined(samples(1, 30, size=9_000))
        assert disk.read(disk.inputs, 2) == joined(samples(2, 12))
    pytest.fail("it never came to an end")


def test_too_few_ids_are_an_error_that_leaves_nothing_behind():
    disk = Disk(LARGE)

    with pytest.raises(ValueError, match="too few"):
        merge(replace(job(disk.inputs, own_bytes=1, target_bytes=1), segment_ids=(7,)), disk.files)

    assert outputs(disk) == []


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


def test_checksums_are_put_together_and_not_made_anew(monkeypatch: pytest.MonkeyPatch):
    """Each byte of an entry is walked once."""
    walked = 0

    def counting(data: bytes, value: int = 0) -> int:
        nonlocal walked
        walked += len(data)
        return crc32c(data, value)

    disk = Disk(*(samples(1, 20, base=20 * at, size=3_000) for at in range(8)))
    for module in ("merge", "merge_input", "segment"):
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
