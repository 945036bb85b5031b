"""Deferred entries: how long they may stay in a window, and when readers see them.

A topic with `flush=interval` is acknowledged from memory; the journal commits within `interval_s`.
"""

from __future__ import annotations

import errno

import pytest
from msgspec.structs import replace

from tests.log.rig import SMALL, Rig, make_entry
from trilogue.log.errors import StorageFailed

INTERVAL_S = SMALL.journal.interval_s
PATIENT, DURABLE = 1, 2
FACT = 7


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.open().partition(PATIENT).acks_from_memory = True
    return rig


def ends(rig: Rig, partition_id: int = PATIENT) -> tuple[int, int]:
    partition = rig.log.partition(partition_id)
    return partition.high_watermark, partition.end_offset


def commits(rig: Rig) -> int:
    return rig.log.journal.counts.commits


def test_the_promise_names_the_longest_interval() -> None:
    """With `flush=interval` entries are synced at least every 100 ms."""
    assert 0 < INTERVAL_S <= 0.1


def test_patient_entries_share_one_commit_when_their_time_is_over(rig: Rig) -> None:
    rig.append(PATIENT)
    rig.loop.run()
    rig.loop.pass_time(INTERVAL_S / 2)
    rig.append(PATIENT)
    rig.loop.run()
    assert (ends(rig), commits(rig)) == ((0, 2), 0)

    rig.loop.pass_time(INTERVAL_S / 2)
    rig.loop.run()

    assert (ends(rig), commits(rig)) == ((2, 2), 1)


def test_a_deferred_fact_is_committed_with_others_or_when_its_interval_ends(rig: Rig) -> None:
    for _ in range(2):
        rig.log.journal.add_fact(FACT, b"", deferred=True)
        rig.loop.run()
    assert commits(rig) == 0
    rig.loop.pass_time(INTERVAL_S)
    rig.loop.run()
    assert (commits(rig), rig.log.journal.counts.facts) == (1, 2)

    rig.log.journal.add_fact(FACT, b"", deferred=True)
    rig.commit(DURABLE)

    assert (commits(rig), rig.log.journal.counts.facts) == (2, 3)


def test_each_window_has_its_own_time(rig: Rig) -> None:
    for number in range(1, 4):
        rig.append(PATIENT)
        rig.loop.pass_time(INTERVAL_S)
        rig.loop.run()
        assert (ends(rig), commits(rig)) == ((number, number), number)
    rig.loop.pass_time(10)
    rig.loop.run()
    assert commits(rig) == 3, "nothing is written when there is nothing"


def test_entries_appended_during_a_commit_wait_for_the_interval(rig: Rig) -> None:
    """Else the end of one commit would start the next, and there were no interval."""
    rig.append(PATIENT)
    rig.loop.pass_time(INTERVAL_S)
    rig.loop.turn()
    rig.loop.turn()  # on its way to the disk
    rig.append(PATIENT)
    rig.loop.run()
    assert (ends(rig), commits(rig)) == ((1, 2), 1)

    rig.loop.pass_time(INTERVAL_S)
    rig.loop.run()

    assert (ends(rig), commits(rig)) == ((2, 2), 2)


@pytest.mark.parametrize("how", ["entry", "fact", "waiter"])
def test_a_window_is_committed_at_once_when_a_caller_waits_for_it(rig: Rig, how: str) -> None:
    outcomes: list[object] = []
    rig.append(PATIENT)
    rig.loop.run()

    if how == "entry":
        rig.append(DURABLE)
    elif how == "fact":
        rig.log.journal.add_fact(FACT, b"")
    else:
        rig.log.journal.on_commit(outcomes.append)
    rig.loop.run()

    assert (ends(rig), commits(rig)) == ((1, 1), 1)
    assert outcomes == ([None] if how == "waiter" else [])


def test_a_timer_left_over_does_no_harm(rig: Rig) -> None:
    rig.append(PATIENT)
    rig.commit(DURABLE)

    rig.loop.pass_time(INTERVAL_S)
    rig.loop.run()

    assert (ends(rig), commits(rig)) == ((1, 1), 1)


def test_a_full_window_does_not_wait(rig: Rig) -> None:
    for _ in range(4):  # three fill a window
        rig.append(PATIENT, make_entry(9000))
    rig.loop.run()

    assert (ends(rig), commits(rig)) == ((3, 4), 1)
    rig.loop.pass_time(INTERVAL_S)
    rig.loop.run()
    assert (ends(rig), commits(rig)) == ((4, 4), 2)


def test_readers_see_only_durable_entries_and_are_woken_then(rig: Rig) -> None:
    woken: list[int] = []
    rig.log.partition(PATIENT).wait(lambda: woken.append(1))
    rig.append(PATIENT)
    rig.loop.run()
    assert (rig.content(PATIENT), woken) == (b"", [])

    rig.loop.pass_time(INTERVAL_S)
    rig.loop.run()

    assert (len(rig.content(PATIENT)), woken) == (100, [1])


def test_a_kill_loses_what_was_not_durable_and_its_offsets_are_given_again(rig: Rig) -> None:
    rig.append(PATIENT, make_entry(fill=1))
    rig.loop.pass_time(INTERVAL_S)
    rig.loop.run()
    rig.append(PATIENT, make_entry(fill=2))
    rig.loop.run()

    rig.restart()

    assert ends(rig) == (1, 1)
    assert rig.commit(PATIENT, make_entry(fill=3)) == 1
    assert rig.content(PATIENT)[-1] == 3


def test_an_orderly_end_loses_nothing(rig: Rig) -> None:
    rig.append(PATIENT)
    rig.shut()

    rig.open()

    assert ends(rig) == (1, 1)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_after_a_failed_disk_nothing_more_is_taken(rig: Rig, operation: str) -> None:
    rig.append(PATIENT)
    rig.fs.fail(operation, errno.EIO)
    rig.loop.pass_time(INTERVAL_S)
    rig.loop.run()

    with pytest.raises(StorageFailed):
        rig.append(PATIENT)
    assert ends(rig) == (0, 1)
    assert [type(each) for each in rig.failures] == [StorageFailed]
    rig.loop.pass_time(INTERVAL_S)
    rig.loop.run()
    assert rig.loop.timers == []


def test_a_timer_that_comes_after_the_end_finds_nothing_to_do(rig: Rig) -> None:
    rig.append(PATIENT)
    rig.shut()
    before = commits(rig)

    rig.loop.pass_time(INTERVAL_S)
    rig.loop.run()

    assert commits(rig) == before


def test_the_interval_is_a_limit_of_the_journal() -> None:
    rig = Rig(limits=replace(SMALL, journal=replace(SMALL.journal, interval_s=0.1)))
    rig.open().partition(PATIENT).acks_from_memory = True
    rig.append(PATIENT)

    rig.loop.pass_time(0.099)
    rig.loop.run()
    assert commits(rig) == 0
    rig.loop.pass_time(0.001)
    rig.loop.run()
    assert commits(rig) == 1
