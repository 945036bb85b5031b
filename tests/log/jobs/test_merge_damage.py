"""What damage, failures and crashes cost a merge: never a wrong byte, and never a file left."""

from __future__ import annotations

import errno
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes import FakeFileSystem, PowerCut
from tests.log.jobs.merging import HOME, KIB, Disk, job, joined
from tests.log.samples import Sample, samples
from trilogue.log.errors import CorruptLog
from trilogue.log.jobs.merge import merge
from trilogue.log.segments.segment_info import SegmentInfo

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
    """Without the index its blocks are unknown; with a part moved, its offsets would overlap."""
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


@settings(deadline=None, max_examples=25)
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
