"""A journal file's lives: filled once, used again under another name, never what it was before.

The model test cuts the power at any step too; here each rule of docs/decisions/0003 stands alone.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest

from tests.fakes import PowerCut
from tests.log.journal.test_frame import make_frame
from tests.log.journal.test_recovery import (
    FIRST,
    JOURNAL,
    filled,
    flushed_all,
    header_at,
    make_stray,
    write,
)
from tests.log.rig import CLUSTER, Rig, make_entry
from trilogue.log.files import BLOCK
from trilogue.log.journal.frame import FileHeader, encode_file_header, file_name


def prepared(rig: Rig) -> Path:
    """The file that is ready and holds no frame."""
    return rig.journal_files()[-1]


def is_durable(rig: Rig, path: Path) -> bool:
    """Whether the name would survive a power cut."""
    return rig.fs.durable_names.get(path) is rig.fs.names.get(path)


# -- filling -------------------------------------------------------------------------------------


def test_a_new_file_is_zeros_to_its_end_and_all_of_it_is_durable() -> None:
    """Committing into blocks that were written is a third faster, if their zeros are on disk."""
    rig = filled(1)
    rig.loop.work()

    inode = rig.fs.names[prepared(rig)]

    size = rig.limits.journal.file_bytes
    assert len(inode.durable) == len(inode.data) == size
    assert inode.data[BLOCK:] == bytes(size - BLOCK)
    assert inode.versions == {}, "written and not synced"


# -- being used again ----------------------------------------------------------------------------


def test_a_flushed_file_is_used_again_and_not_filled_again() -> None:
    rig = filled(6)
    rig.loop.work()
    rig.commit()
    inode = rig.fs.names[FIRST]
    flushed_all(rig)
    rig.commit()  # in the file that was ready: another is wanted
    before = dict(rig.fs.counts)

    rig.loop.work()

    assert any(each is inode for each in rig.fs.names.values())
    assert FIRST not in rig.fs.names
    assert rig.fs.counts["create"] == before["create"]
    written = rig.fs.counts["write"] - before["write"]
    assert written == 2, "its header, and what the small first file was short of"


def test_each_life_has_a_name_and_an_incarnation_of_its_own() -> None:
    rig = Rig()
    rig.open()
    seen = {}
    for _ in range(6):
        rig.commit(1, make_entry(5000))
        for path in rig.journal_files():
            header = header_at(rig, path)
            assert seen.setdefault(header.number, header) == header
        flushed_all(rig)
        rig.loop.work()

    assert len(seen) >= 6
    assert len({header.incarnation for header in seen.values()}) == len(seen)
    assert len({header.seed for header in seen.values()}) == len(seen)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("step", range(8))
def test_a_power_cut_while_a_file_changes_its_name_harms_nothing(step: int, seed: int) -> None:
    """Its old name must not come back with the new header, nor its new name with the old one."""
    rig = filled(6)
    rig.loop.work()
    rig.commit()
    flushed_all(rig)
    rig.commit()
    rig.fs.cut_after(step)
    with contextlib.suppress(PowerCut):
        rig.loop.work()
    rig.fs.power_cut(Random(seed))

    rig.open()

    assert rig.log.partition(1).high_watermark == 8
    assert rig.commit() == 8


# -- after a crash -------------------------------------------------------------------------------


def test_a_prepared_files_name_is_durable_before_frames_go_there() -> None:
    """The process that made it may have been killed between the new name and its sync."""
    for step in range(40):
        rig = filled(1)
        rig.loop.work()
        flushed_all(rig)  # nothing is recovered, so nothing else syncs the folder
        rig.commit()
        flushed_all(rig)
        rig.fs.cut_after(step)
        try:
            rig.loop.work()
        except PowerCut:
            rig.fs.kill()
            rig.open()
            for path in rig.journal_files():
                assert path.suffix != ".journal" or is_durable(rig, path), (step, path)
        else:
            break
    else:
        pytest.fail("the file is never made")
    assert step > 3


def test_file_rewritten_by_recovery_is_durable_and_ends_with_the_last_frame() -> None:
    rig = filled(3)
    end = BLOCK * 4
    write(rig, FIRST, end, b"\xaa" * 9000)

    rig.restart()

    (sealed,) = rig.log.sealed
    assert (sealed.path, sealed.size) == (FIRST, end)
    inode = rig.fs.names[FIRST]
    assert len(inode.data) == end, "what was torn is not carried along"
    assert inode.data == inode.durable
    assert is_durable(rig, FIRST)


def test_frames_that_never_happened_are_durably_gone() -> None:
    """Or the next power cut would bring them back beside others of the same sequence."""
    rig = filled(2)
    rig.fs.kill()
    header = FileHeader(5, 99, CLUSTER)
    path = JOURNAL / file_name(5)
    stray = make_frame(4, [(1, bytes(make_entry()))], header=header)
    rig.fs.open(path, create=True).close()
    rig.fs.sync_directory(JOURNAL)
    write(
        rig,
        path,
        0,
        bytes(encode_file_header(header)) + make_stray(stray, durable_through=2, header=header),
    )

    rig.restart()

    assert path not in rig.fs.durable_names


def test_where_flushed_files_wait_two_are_made_ready_and_none_is_filled_for_it() -> None:
    """In a flood the next file is full before another one has got its header."""
    rig = filled(6)
    rig.loop.work()
    flushed_all(rig)
    for _ in range(30):  # a few files, all of them flushed
        rig.commit(1, make_entry(5000))
        flushed_all(rig)
        rig.loop.work()
    rig.loop.work()
    created, journal = rig.fs.counts["create"], rig.log.journal
    sealed, late = journal.files_sealed, journal.spares_late

    while journal.files_sealed < sealed + 2:  # and no spare is prepared meanwhile
        rig.commit(1, make_entry(5000))

    assert journal.spares_late == late
    assert rig.fs.counts["create"] == created
