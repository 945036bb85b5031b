"""Room in the tail comes back, and an end that failed is not taken for an orderly one."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from tests.log.rig import SMALL, Rig, make_entry
from trilogue.log.partition_log import NOTHING


def test_the_tail_of_a_deleted_partition_is_let_go_even_while_it_is_held():
    """Caches of topics hold deleted ones for a while: their memory must not stay with them."""
    rig = Rig()
    log = rig.open()
    held = log.partition(1)
    for _ in range(5):
        rig.commit(1, make_entry(10_000))

    log.drop_partition(1)

    assert log.tail_bytes == 0
    assert held.read(held.end_offset, 1 << 20) == NOTHING
    assert held.offset_for_time(0) is None


def test_a_partition_deleted_while_its_entries_are_written_shows_nothing_later():
    rig = Rig()
    log = rig.open()
    held = log.partition(1)
    rig.append(1)

    log.drop_partition(1)
    rig.loop.run()

    assert log.tail_bytes == 0
    assert held.read(held.end_offset, 1 << 20) == NOTHING
    assert held.max_timestamp == -1


def test_a_journal_file_ends_when_a_full_tail_waits_for_its_flush():
    """With less room than a file takes, producers would wait until the file is old."""
    journal = replace(SMALL.journal, file_bytes=1 << 20, first_file_bytes=1 << 20, file_entries=999)
    rig = Rig(limits=replace(SMALL, tail_bytes=64 << 10, journal=journal))
    log = rig.open()
    relieved: list[bool] = []
    while not log.under_pressure:
        rig.commit(1, make_entry(5_000))
    assert rig.sealed == []

    log.on_relief(lambda: relieved.append(True))
    rig.loop.run()

    assert len(rig.sealed) == 1
    assert relieved == []


def test_an_end_that_could_not_be_synced_is_not_trusted_at_the_next_start():
    """The page cache shows the journal's last word; a power cut shows that no disk has it."""
    rig = Rig()
    rig.open()
    rig.commit()
    rig.fs.fail("sync")
    rig.shut()
    rig.restart()
    rig.commit()

    rig.fs.power_cut(Random(3))
    rig.open()

    assert rig.log.partition(1).high_watermark == 2
