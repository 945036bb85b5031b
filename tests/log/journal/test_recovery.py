"""Torn tail or corruption, and what each of them costs. The model test tries the combinations."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.log.journal.test_frame import make_frame
from tests.log.rig import CLUSTER, DATA, Rig, make_entry
from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.log.files import BLOCK
from trilogue.log.journal.frame import (
    LOST,
    FileHeader,
    Frame,
    decode_file_header,
    encode_file_header,
    file_name,
    iter_frames,
)
from trilogue.log.segments.segment_info import FlushResult

JOURNAL = DATA / "journal"
FIRST = JOURNAL / file_name(1)


def header_at(rig: Rig, path: Path = FIRST) -> FileHeader:
    header = decode_file_header(memoryview(rig.fs.read(path)))
    assert header is not None
    return header


def frames_at(rig: Rig, path: Path = FIRST) -> list[Frame]:
    return list(iter_frames(memoryview(rig.fs.read(path)), header_at(rig, path)))


def write(rig: Rig, path: Path, at: int, data: bytes) -> None:
    """Change what lies on the disk."""
    rig.fs.kill()
    inode = rig.fs.names[path]
    inode.write(data, at)
    inode.persist()


def filled(commits: int = 4, size: int = 100) -> Rig:
    rig = Rig()
    rig.open()
    for fill in range(commits):
        rig.commit(1, make_entry(size, fill=fill))
    return rig


def flushed_all(rig: Rig) -> None:
    """As if everything sealed had gone to a segment."""
    rig.log.seal()
    rig.loop.run()
    last = rig.log.sealed[-1].last_sequence
    end = rig.log.partition(1).high_watermark
    rig.flushed_through = last
    rig.ranges[1] = type(rig.ranges[1])(end, end, end)
    rig.log.apply_flush(FlushResult(None, {1: end}, last, 0, 0, 0))


# -- what comes back -----------------------------------------------------------------------------


def test_all_that_was_durable_comes_back_with_its_offsets_and_bytes() -> None:
    rig = filled()
    rig.commit(2, make_entry(span=7))
    rig.log.journal.add_fact(3, b"a fact")
    rig.commit(1)
    before = rig.content(1), rig.content(2)

    log = rig.restart()

    assert (rig.content(1), rig.content(2)) == before
    assert [log.partition(each).end_offset for each in (1, 2, 3)] == [5, 7, 0]
    assert rig.facts == [(3, b"a fact")]
    assert log.journal.last_sequence == 6
    assert [file.entry_count for file in log.sealed] == [6]
    assert not log.recovered.torn  # type: ignore[union-attr]


def test_entries_of_producers_are_reported_in_order_and_others_are_not() -> None:
    rig = filled(1)
    for sequence in (0, 1):
        rig.commit(2, make_entry(producer_id=77, base_sequence=sequence))

    rig.restart()

    reported = [(number, seen.producer_id, seen.base_sequence) for number, seen in rig.entries]
    assert reported == [(2, 77, 0), (2, 77, 1)]
    assert [seen.base_offset for _, seen in rig.entries] == [0, 1]


def test_a_recovered_file_takes_no_more_frames_and_counts_as_sealed() -> None:
    rig = filled()
    rig.restart()
    rig.commit()

    assert len(frames_at(rig)) == 4
    assert [file.last_sequence for file in rig.log.sealed] == [4]
    assert [frame.sequence for frame in frames_at(rig, rig.journal_files()[-1])] == [5]


def test_many_restarts_change_nothing() -> None:
    rig = filled()
    before = rig.content()

    for seed in range(5):
        rig.fs.power_cut(Random(seed))
        rig.open()
        rig.loop.work()

    assert rig.content() == before
    assert rig.commit() == 4
    assert len(rig.journal_files()) <= 3


def test_frames_and_entries_that_are_in_segments_are_passed_over() -> None:
    rig = filled()
    flushed_all(rig)
    rig.commit()

    log = rig.restart()

    partition = log.partition(1)
    assert (partition.start_offset, partition.high_watermark) == (4, 5)
    assert log.recovered.frames == 1  # type: ignore[union-attr]
    assert log.journal.last_sequence == 5


def test_entries_below_the_start_or_of_unknown_partitions_are_passed_over() -> None:
    rig = filled(4, 100)
    rig.commit(2)
    rig.ranges[1] = type(rig.ranges[1])(2, 0, 0)
    del rig.ranges[2]

    log = rig.restart()

    assert len(rig.content()) == 200
    assert log.partition(1).start_offset == 2
    with pytest.raises(KeyError):
        log.partition(2)


def test_an_entry_across_the_start_is_kept_whole() -> None:
    rig = Rig()
    rig.open()
    rig.commit(1, make_entry(span=10))
    rig.commit(1)
    rig.ranges[1] = type(rig.ranges[1])(5, 0, 0)

    log = rig.restart()

    assert log.partition(1).high_watermark == 11
    assert len(rig.content()) == 200


def test_the_sequence_goes_on_where_all_files_are_flushed_and_gone() -> None:
    rig = filled()
    flushed_all(rig)
    for path in rig.journal_files():
        rig.fs.unlink(path)

    log = rig.restart()

    assert log.journal.last_sequence == 4
    rig.commit()
    assert frames_at(rig, rig.journal_files()[-1])[0].sequence == 5


def test_unfinished_files_are_removed() -> None:
    rig = filled()
    for name in ("0000000000000099.spare", "0000000000000001.tmp", "notes.txt"):
        rig.fs.open(JOURNAL / name, create=True).close()

    rig.restart()

    names = [path.name for path in rig.journal_files()]
    assert "notes.txt" in names, "not ours"
    assert not [name for name in names if name.endswith((".spare", ".tmp"))]


# -- the torn tail -------------------------------------------------------------------------------


def test_a_frame_torn_at_any_sector_is_dropped_and_nothing_else() -> None:
    for cut in range(0, 9000, 512):
        rig = filled(3)
        end = frames_at(rig)[-1].end
        frame = make_frame(
            4, [(1, b"\0" * 7 + b"\3" + bytes(make_entry(9000, fill=7))[8:])], header=header_at(rig)
        )
        before = rig.content()
        write(rig, FIRST, end, frame[:cut])

        log = rig.restart()

        assert rig.content() == before
        assert log.recovered.torn is (cut > 0)  # type: ignore[union-attr]
        assert rig.commit() == 3
        rig.restart()
        assert rig.content()[: len(before)] == before
        assert len(rig.content()) == len(before) + 100


@pytest.mark.parametrize("seed", range(8))
def test_garbage_after_the_tail_is_dropped(seed: int) -> None:
    rig = filled(3)
    before = rig.content()
    garbage = Random(seed).randbytes(30_000)
    if seed % 2:
        garbage = b"TRLF" + garbage
    write(rig, FIRST, frames_at(rig)[-1].end, garbage)

    rig.restart()

    assert rig.content() == before
    assert rig.commit() == 3


def test_a_chopped_file_loses_only_what_was_chopped_off() -> None:
    rig = filled(4)
    rig.fs.kill()
    frames = frames_at(rig)
    inode = rig.fs.names[FIRST]
    inode.truncate(frames[3].position + 70)
    inode.persist()

    rig.restart()

    assert len(rig.content()) == 300
    assert rig.commit() == 3


def test_the_valid_prefix_is_durable_before_anything_is_served() -> None:
    """A killed process leaves frames in the page cache that no disk holds."""
    rig = filled(2)
    rig.append()
    rig.fs.fail("sync")
    rig.loop.run()
    rig.restart()
    assert len(rig.content()) == 300, "the cache shows what the disk does not have"

    rig.fs.power_cut(Random(1))
    rig.open()

    assert len(rig.content()) == 300, "seen once, seen for ever"


def test_old_frames_of_a_recycled_file_are_never_valid() -> None:
    """They are whole, they are where frames belong, and their sequences are made to fit."""
    rig = filled(6)
    old = rig.fs.read(FIRST)
    flushed_all(rig)
    rig.loop.work()
    rig.commit()
    path = next(path for path in rig.journal_files() if frames_at(rig, path))
    end = frames_at(rig, path)[-1].end
    life = FileHeader(1, 4711, CLUSTER)
    left = make_frame(8, [(1, bytes(make_entry()))], header=life)
    write(rig, path, end, left + old[BLOCK:])

    log = rig.restart()

    assert log.journal.last_sequence == 7
    assert log.partition(1).high_watermark == 7


def test_a_prepared_file_is_used_again_and_a_torn_one_gets_a_new_life() -> None:
    rig = filled(1)
    rig.loop.work()
    spare = JOURNAL / file_name(2)
    prepared = header_at(rig, spare)
    rig.restart()
    rig.commit()
    assert header_at(rig, spare) == prepared, "as it was"

    rig.log.seal()
    rig.loop.work()
    last = rig.journal_files()[-1]
    torn = make_frame(3, [(1, bytes(make_entry(9000, fill=7)))], header=header_at(rig, last))
    write(rig, last, BLOCK, torn[:BLOCK])
    log = rig.restart()
    assert log.recovered.torn  # type: ignore[union-attr]
    rig.loop.work()
    rig.commit()

    content = rig.content()
    rig.restart()
    assert rig.content() == content
    assert not rig.log.recovered.torn  # type: ignore[union-attr]


def test_unacknowledged_frames_are_gone_for_good() -> None:
    """With two commits in flight a later file may hold a frame whose predecessor is missing."""
    rig = filled(2)
    rig.fs.kill()
    later = FileHeader(5, 99, CLUSTER)
    path = JOURNAL / file_name(5)
    stray = make_frame(4, [(1, bytes(make_entry()))], header=later)
    stray = make_stray(stray, durable_through=2, header=later)
    rig.fs.open(path, create=True).close()
    write(rig, path, 0, bytes(encode_file_header(later)) + stray)

    log = rig.restart()

    assert log.journal.last_sequence == 2
    assert path not in rig.journal_files()
    rig.commit()
    rig.commit()
    rig.restart()
    assert len(rig.content()) == 400


def make_stray(frame: bytes, *, durable_through: int, header: FileHeader) -> bytes:
    from trilogue.entry.checksum import crc32c

    length = int.from_bytes(frame[12:16], "big")
    changed = bytearray(frame)
    changed[24:32] = durable_through.to_bytes(8, "big")
    changed[4:8] = crc32c(bytes(changed[8:length]), header.seed).to_bytes(4, "big")
    return bytes(changed)


# -- corruption ----------------------------------------------------------------------------------


def test_a_damaged_frame_that_was_durable_is_refused_and_named() -> None:
    rig = filled(4)
    frame = frames_at(rig)[1]
    write(rig, FIRST, frame.position + 100, b"\xff")

    with pytest.raises(CorruptLog, match=r"frame 2 was durable \(frame 3 records it\)") as error:
        rig.restart()

    assert error.value.path == FIRST
    assert error.value.position == frame.position
    assert "--salvage" in str(error.value)


def test_damage_at_the_end_of_a_file_is_proved_by_the_next_file() -> None:
    rig = filled(3)
    rig.log.seal()
    rig.commit()
    write(rig, FIRST, frames_at(rig)[2].position + 100, b"\xff")

    with pytest.raises(CorruptLog, match="frame 3 was durable"):
        rig.restart()


def test_damage_in_the_last_frame_is_proved_by_an_orderly_end() -> None:
    rig = filled(3)
    rig.shut()
    write(rig, FIRST, frames_at(rig)[2].position + 100, b"\xff")

    with pytest.raises(CorruptLog, match="frame 3 was durable"):
        rig.open()


def test_a_missing_file_is_refused() -> None:
    rig = filled(2)
    rig.log.seal()
    rig.commit()
    rig.fs.kill()
    rig.fs.unlink(FIRST)

    with pytest.raises(CorruptLog, match="frame 1 was durable"):
        rig.open()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda header: b"garbage", "does not read"),
        (lambda header: encode_file_header(header._replace(number=9)), "wrong name"),
        (lambda header: encode_file_header(header._replace(cluster_id=bytes(16))), "another clu"),
    ],
)
def test_file_with_a_wrong_header_is_refused(change, reason: str) -> None:  # type: ignore[no-untyped-def]
    rig = filled(2)
    write(rig, FIRST, 0, bytes(change(header_at(rig))))

    with pytest.raises(CorruptLog, match=reason):
        rig.open()


def test_the_same_frames_twice_are_refused() -> None:
    rig = filled(2)
    rig.log.seal()
    data = rig.fs.read(FIRST)
    path = JOURNAL / file_name(7)
    header = FileHeader(7, header_at(rig).incarnation, CLUSTER)
    rig.fs.kill()
    rig.fs.open(path, create=True).close()
    extra = make_frame(3, [(1, b"\0" * 7 + b"\2" + bytes(make_entry())[8:])], header=header)
    write(rig, path, 0, bytes(encode_file_header(header)) + data[BLOCK : 3 * BLOCK] + extra)

    with pytest.raises(CorruptLog, match="frame 1 is there twice"):
        rig.open()


def test_a_partition_that_jumps_is_refused() -> None:
    """Offsets are dense where nothing was lost: a jump means that something is missing."""
    rig = filled(2)
    header = header_at(rig)
    entry = (5).to_bytes(8, "big") + bytes(make_entry())[8:]
    write(rig, FIRST, frames_at(rig)[-1].end, make_frame(3, [(1, entry)], header=header))

    with pytest.raises(CorruptLog, match="partition 1 goes on at 5, 2 was next") as error:
        rig.open()
    assert error.value.path == FIRST


def test_a_frame_that_counts_wrong_is_refused_with_its_place() -> None:
    rig = filled(1)
    entry = (1).to_bytes(8, "big") + bytes(make_entry())[8:]
    frame = make_frame(2, [(1, entry)], header=header_at(rig), entry_count=2)
    write(rig, FIRST, frames_at(rig)[-1].end, frame)

    with pytest.raises(CorruptLog, match="fewer entries") as error:
        rig.open()
    assert error.value.path == FIRST


def test_a_newer_journal_is_refused() -> None:
    rig = filled(1)
    from trilogue.entry.checksum import crc32c

    block = bytearray(rig.fs.read(FIRST)[:BLOCK])
    block[15] = 2
    block[8:12] = crc32c(bytes(block[12:])).to_bytes(4, "big")
    write(rig, FIRST, 0, bytes(block))

    with pytest.raises(NewerFormat):
        rig.open()


# -- salvage -------------------------------------------------------------------------------------


def test_salvage_goes_on_behind_the_hole_and_marks_it_for_ever() -> None:
    rig = filled(5)
    entries = rig.content()
    for at in (1, 2):
        write(rig, FIRST, frames_at_all(rig)[at] + 100, b"\xff")

    log = rig.restart(salvage=True)

    assert log.recovered.lost_frames  # type: ignore[union-attr]
    assert rig.content() == entries[:100] + entries[300:]
    assert log.partition(1).end_offset == 5, "offsets are never given again"
    found = log.partition(1).read(1, 100)
    assert b"".join(found.slices) == entries[300:400], "the next one answers"  # type: ignore[union-attr]
    assert rig.commit() == 5
    assert [frame.flags for frame in frames_at(rig) if frame.flags] == [LOST]

    rig.restart()
    assert rig.content()[:300] == entries[:100] + entries[300:]


def frames_at_all(rig: Rig) -> list[int]:
    """Where the five frames of `filled(5)` are, readable or not."""
    return [BLOCK * each for each in range(1, 6)]


def test_salvage_of_a_sound_log_changes_nothing() -> None:
    rig = filled(3)
    rig.log.seal()
    rig.commit()
    before = rig.content()
    files = {path: rig.fs.read(path) for path in rig.journal_files()[:1]}

    rig.restart(salvage=True)

    assert rig.content() == before
    assert not rig.log.recovered.lost_frames  # type: ignore[union-attr]
    assert files == {path: rig.fs.read(path) for path in files}


def test_salvage_sets_an_unreadable_file_aside() -> None:
    rig = filled(2)
    rig.log.seal()
    for fill in range(3):
        rig.commit(1, make_entry(fill=fill))
    rig.loop.run()
    last = rig.content()[200:]
    write(rig, FIRST, 0, b"garbage")

    log = rig.restart(salvage=True)

    assert rig.content() == last
    assert FIRST.with_suffix(".damaged") in rig.journal_files()
    assert log.partition(1).end_offset == 5
    rig.restart()
    assert rig.content() == last
