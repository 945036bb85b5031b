"""What named producers have written: expiry, bounds, and what a snapshot may know."""

from __future__ import annotations

import pytest

from trilogue.broker.producers.deduplication import NO_SEQUENCE, Deduplication, DeduplicationLimits
from trilogue.entry.pulsar.pulsar_batch import Stamp
from trilogue.log.errors import CorruptLog

HOUR_MS = 3_600_000


class Room:
    """Deduplication of partition 1, of which everything below `end` is durable."""

    def __init__(self, limits: DeduplicationLimits | None = None) -> None:
        self.deduplication = Deduplication(limits)
        self.end = 0
        self.rows: dict[bytes, bytes] = {}

    def write(self, key: int, sequence: int, base_offset: int, now_ms: int = 0) -> None:
        stamp = Stamp(sequence, sequence, key, 0)
        self.deduplication.record(1, stamp, base_offset, now_ms, self.end)

    def last(self, key: int) -> int:
        return self.deduplication.last_sequence_id(1, key)

    def flush(self, now_ms: int = 0) -> int:
        """Bring a snapshot to meta; how many rows it had."""
        rows = self.deduplication.snapshot(now_ms, lambda _: self.end)
        for key, value in rows:
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        return len(rows)

    def restarted(self, known=lambda _: True) -> Room:
        back = Room(self.deduplication.limits)
        back.rows, back.end = dict(self.rows), self.end
        for key, value in back.rows.items():
            back.deduplication.load(key, value, known)
        back.deduplication.finish_loading()
        return back


def test_snapshot_contains_only_durable_sequences():
    room = Room()
    room.write(9, 10, 0)
    room.write(9, 20, 1)
    room.write(9, 30, 2)
    assert room.flush() == 0

    room.end = 2
    assert room.flush() == 1
    assert (room.restarted().last(9), room.last(9)) == (20, 30)

    room.end = 3
    assert room.flush() == 1
    assert room.restarted().last(9) == 30
    assert room.flush() == 0


def test_sequences_are_pending_until_durable():
    room = Room()
    for number in range(1_000):
        room.write(9, number, number)
        room.end = number // 2
    room.flush()

    assert room.restarted().last(9) == 498


def test_replayed_entry_never_lowers_the_sequence_of_a_snapshot():
    room = Room()
    room.end = 9
    room.deduplication.restore(1, Stamp(50, 50, 9, 0), 5, 0)
    room.deduplication.restore(1, Stamp(40, 45, 9, 0), 4, 0)
    assert room.last(9) == 50
    room.flush()

    assert room.restarted().last(9) == 50


def test_the_one_that_was_idle_longest_goes_when_it_is_its_time():
    room = Room()
    room.end = 9
    for key, at_ms in ((1, 0), (2, 0), (1, HOUR_MS)):
        room.write(key, 5, 0, at_ms)
    room.flush()

    room.flush(6 * HOUR_MS)
    assert (room.last(1), room.last(2)) == (5, 5)
    room.flush(6 * HOUR_MS + 1)
    assert (room.last(1), room.last(2)) == (5, NO_SEQUENCE)

    assert len(room.rows) == 1
    back = room.restarted()
    back.flush(7 * HOUR_MS + 1)
    assert (len(back.deduplication), back.rows) == (0, {})


def test_a_partition_has_so_many_producers_also_after_a_start():
    room = Room(DeduplicationLimits(producers_max=3))
    room.end = 9
    for number, key in enumerate((3, 2, 1, 3, 4)):
        room.write(key, 5, 0, number)

    assert [room.last(key) for key in (1, 2, 3, 4)] == [5, NO_SEQUENCE, 5, 5]
    room.flush()
    back = room.restarted()
    back.write(5, 5, 0, 9)
    assert [back.last(key) for key in (1, 3, 4, 5)] == [NO_SEQUENCE, 5, 5, 5]


def test_producers_go_with_their_partition_and_with_the_policy():
    room = Room()
    room.end = 9
    room.write(1, 5, 0)
    room.deduplication.record(2, Stamp(7, 7, 1, 0), 0, 0, 9)
    room.flush()
    assert len(room.rows) == 2

    room.deduplication.retain_only(lambda partition_id: partition_id == 2)
    assert (room.last(1), room.deduplication.last_sequence_id(2, 1)) == (NO_SEQUENCE, 7)
    room.deduplication.drop(2)
    room.deduplication.drop(2)
    room.flush()
    assert (len(room.deduplication), room.rows) == (0, {})


def test_drop_of_an_unsaved_partition_deletes_no_row():
    room = Room()
    room.write(1, 5, 0)
    room.deduplication.drop(1)

    assert room.flush() == 0


def test_one_that_comes_back_after_it_was_forgotten_keeps_its_row():
    room = Room()
    room.end = 9
    room.write(1, 5, 0)
    room.flush()
    room.deduplication.drop(1)
    room.write(1, 3, 0)
    room.flush()

    assert room.restarted().last(1) == 3


def test_rows_of_partitions_that_are_gone_are_removed():
    room = Room()
    room.end = 9
    room.write(1, 5, 0)
    room.flush()

    back = room.restarted(known=lambda _: False)
    assert len(back.deduplication) == 0
    back.flush()
    assert back.rows == {}


def test_a_row_has_these_bytes_and_no_others():
    room = Room()
    room.end = 9
    room.write(0xFFEE, 5, 0, 6)
    room.flush()
    [(key, value)] = room.rows.items()

    assert key.hex(" ") == "71 00 00 00 00 00 00 00 01 00 00 00 00 00 00 ff ee"
    assert value.hex(" ") == "01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 06"
    for wrong in ((key[:-1], value), (key, value + b"\0"), (key, b"\2" + value[1:])):
        with pytest.raises(CorruptLog):
            room.deduplication.load(*wrong, lambda _: True)
