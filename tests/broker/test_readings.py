"""Who reads a partition for a TubeMQ group, and how far (wire facts, section 5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import cast

import pytest

from tests.broker.fakes import FakeLog
from trilogue.broker.cursor import Cursors
from trilogue.broker.errors import NotAllowed, TooManyPositions
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.partition import Partition
from trilogue.broker.promise import Promise
from trilogue.broker.readings import (
    ALWAYS_FROM_END,
    FROM_END,
    FROM_START,
    NO_OFFSET,
    Reader,
    ReadingLimits,
    Readings,
)

GROUP = "g"


@dataclass
class Log:
    start_offset: int = 0
    high_watermark: int = 0

    @property
    def stable_end(self) -> int:
        return self.high_watermark


@dataclass
class OnePartition:
    """What readings ask of a partition."""

    partition_id: int = 1
    log: Log = field(default_factory=Log)


class Room:
    """Readings over cursors whose journal is durable when told."""

    def __init__(self, limits: ReadingLimits | None = None) -> None:
        self.journal = FakeLog()
        self.cursors = Cursors(lambda _: True)
        self.limits = limits
        self.there = OnePartition()
        self.partition = cast("Partition", self.there)
        self.start()

    def start(self) -> None:
        """A node begins, with what was durable."""
        self.readings = Readings(
            lambda group, moves: self.cursors.commit(
                self.journal, Protocol.TUBEMQ, group, moves, 0
            ),
            lambda group, number: self.cursors.position(Protocol.TUBEMQ, group, number),
            self.limits,
        )

    def register(self, client: str = "c", **how: int) -> Reader:
        return self.readings.register(self.partition, GROUP, client, **{"now_ms": 0, **how})[0]

    def durable(self) -> int | None:
        position = self.cursors.position(Protocol.TUBEMQ, GROUP, 1)
        return None if position is None else position.offset

    def read(self, reader: Reader, end: int, **how: bool) -> int:
        """One get, up to an offset; where it began."""
        manual = how.get("manual", False)
        start = self.readings.begin(reader, consumed=how.get("consumed", False), manual=manual)
        self.readings.handed_out(
            reader, start, end, manual=manual, is_empty=how.get("is_empty", False)
        )
        return start


def test_a_new_groups_position_is_durable_before_it_is_told():
    room = Room()
    room.there.log.high_watermark = 7

    reader, promise = room.readings.register(
        room.partition, GROUP, "c", now_ms=0, read_status=FROM_END
    )

    assert reader.committed == 7
    assert promise is not None
    assert not promise.done
    room.journal.commit()
    assert promise.done
    assert room.durable() == 7


def test_a_confirm_is_told_when_it_is_durable_and_the_reader_goes_on_at_once():
    room = Room()
    room.there.log.high_watermark = 9
    reader = room.register()
    room.journal.commit()
    assert room.read(reader, 4) == 0

    promise = room.readings.confirm(reader, consumed=True)

    assert promise is not None
    assert (promise.done, room.durable()) == (False, 0)
    assert room.read(reader, 6) == 4
    again = room.readings.confirm(reader, consumed=False)
    assert again is promise, "what is told with it is not durable yet"
    room.journal.commit()
    assert (promise.done, room.durable()) == (True, 4)


def test_whoever_comes_next_begins_where_the_last_one_was_also_when_that_is_not_durable_yet():
    room = Room()
    room.there.log.high_watermark = 9
    first = room.register("first")
    room.read(first, 5)
    room.readings.unregister(first, consumed=True)

    second, promise = room.readings.register(room.partition, GROUP, "second", now_ms=0)

    assert second.committed == 5
    assert promise is not None
    room.journal.commit()
    assert promise.done


def test_moves_on_their_way_do_not_hide_later_ones():
    room = Room()
    room.there.log.high_watermark = 200
    room.readings.reset(room.partition, GROUP, 100)
    room.readings.reset(room.partition, GROUP, 50)
    room.readings.reset(room.partition, GROUP, 100)
    for _ in range(3):
        assert room.readings.position(1, GROUP) == 100
        room.journal.commit(waiters=1)
    assert room.readings.position(1, GROUP) == 100


def test_a_negative_position_is_none():
    room = Room()
    room.there.log.high_watermark = 3
    room.cursors.commit(room.journal, Protocol.TUBEMQ, GROUP, [CursorMove(1, -1)], 0)
    room.journal.commit()

    assert room.register(read_status=FROM_END).committed == 3


def test_what_a_bound_group_agreed_on_goes_before_all_else_once():
    room = Room()
    room.there.log.high_watermark = 9
    room.readings.begin_at(1, GROUP, 6)
    room.readings.begin_at(2, GROUP, 6)
    reader = room.register(offset=3)
    assert reader.committed == 6
    assert room.register(offset=3).committed == 3
    room.readings.forget_starts(GROUP)
    room.there.partition_id = 2
    assert room.register().committed == 0


def test_a_silent_reader_is_let_go_of_and_what_it_has_is_not_confirmed():
    room = Room(ReadingLimits(session_ms=10))
    room.there.log.high_watermark = 9
    gone: list[Reader] = []
    room.readings.on_gone.append(gone.append)
    reader = room.register()
    room.read(reader, 4)
    room.readings.heard(reader, 5)

    assert room.readings.occupant(1, GROUP, "other", 15) == "c"
    assert room.readings.expire(15) == []
    assert room.readings.expire(16) == [reader]
    assert gone == [reader]
    assert reader.is_gone
    assert room.readings.find(1, GROUP) is None
    assert room.readings.consumer(GROUP, "c") is None
    assert room.register("other").committed == 0


def test_whose_session_is_over_stands_in_nobodys_way():
    room = Room(ReadingLimits(session_ms=10))
    room.register()
    assert room.readings.occupant(1, GROUP, "c", 0) == ""
    assert room.readings.occupant(1, GROUP, "other", 11) == ""
    assert len(room.readings) == 0


def test_there_are_so_many_readers_and_filters_and_no_more():
    room = Room(ReadingLimits(readers_max=1, filters_max=1, filter_size_max=3))
    room.register()
    room.register()
    with pytest.raises(TooManyPositions):
        room.readings.register(room.partition, "another", "c", now_ms=0)
    for filters in (["a", "b"], ["long"]):
        with pytest.raises(NotAllowed):
            room.readings.register(room.partition, GROUP, "c", now_ms=0, filters=filters)


def test_readers_say_so_much_of_themselves_and_no_more():
    """What counts is what is there now: whoever goes, or comes again, makes room."""
    size = len(GROUP) + len("c") + len("ab")
    room = Room(ReadingLimits(said_max=size))
    for _ in range(3):
        reader, _ = room.readings.register(room.partition, GROUP, "c", now_ms=0, filters=["ab"])
    with pytest.raises(TooManyPositions):
        room.readings.register(room.partition, "x", "c", now_ms=0)
    room.readings.unregister(reader, consumed=False)
    room.readings.register(room.partition, "x", "c", now_ms=0)


def test_partitions_that_are_deleted_have_no_readers():
    room = Room()
    reader = room.register()
    room.readings.begin_at(1, GROUP, 4)

    room.readings.drop([1])

    assert reader.is_gone
    assert room.register().committed == 0


@pytest.mark.parametrize("manual", [False, True])
def test_what_was_read_for_a_position_that_moved_meanwhile_is_not_booked(*, manual: bool):
    room = Room()
    room.there.log.high_watermark = 9
    moved: list[Reader] = []
    room.readings.on_moved.append(moved.append)
    reader = room.register()
    start = room.readings.begin(reader, consumed=False, manual=manual)
    room.readings.reset(room.partition, GROUP, 7)

    room.readings.handed_out(reader, start, 5, manual=manual, is_empty=False)

    assert (reader.committed, reader.temporary) == (7, 0)
    assert moved == [reader]


def test_what_retention_took_is_passed_over_by_both_ways_of_reading():
    room = Room()
    room.there.log.high_watermark = 9
    reader = room.register()
    room.read(reader, 2, manual=True)
    room.there.log.start_offset = 5
    assert room.readings.begin(reader, consumed=False, manual=True) == 5
    assert room.readings.begin(reader, consumed=False, manual=False) == 5
    assert (reader.committed, reader.temporary) == (5, 0)


# ---- a small plain model of section 5


class Model:
    """What is told of one group's position, by the letter."""

    def __init__(self) -> None:
        self.first = self.end = 0
        self.committed: int | None = None
        self.temporary = 0
        self.told = -1  # of what was durable when it was told

    def register(self, offset: int, status: int) -> int:
        self.temporary = 0
        if status == ALWAYS_FROM_END:
            self.committed = self.end
        elif offset >= 0:
            self.committed = sorted((self.first, offset, self.end))[1]
        elif self.committed is None:
            self.committed = self.first if status == FROM_START else self.end
        return self.committed

    def commit(self, *, consumed: bool) -> None:
        assert self.committed is not None
        if consumed:
            self.committed += self.temporary
        self.temporary = 0

    def get(self, size: int, *, consumed: bool, manual: bool, is_empty: bool) -> int:
        """Where it began, or -1 at the end of data."""
        assert self.committed is not None
        if manual:
            at = self.committed + self.temporary
            if at < self.first:
                at, self.temporary = self.first, self.first - self.committed
        else:
            if consumed:
                self.commit(consumed=True)
            if self.committed < self.first:
                self.committed, self.temporary = self.first, 0
            at = self.committed
        if at >= self.end:
            return -1
        self.temporary = min(at + size, self.end) - self.committed
        if is_empty and not manual:
            self.commit(consumed=True)
        return at


class Play:
    """One reader after another, by chance; the model beside."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.room = Room()
        self.model = Model()
        self.reader: Reader | None = None
        self.promises: list[tuple[Promise[None] | None, int]] = []

    def step(self) -> None:
        random, log, model = self.random, self.room.there.log, self.model
        what = random.randrange(10)
        if what <= 1:
            log.high_watermark = model.end = model.end + random.randrange(5)
        elif what == 2:
            log.start_offset = model.first = min(model.end, model.first + random.randrange(3))
        elif what == 3:
            self.room.journal.commit(waiters=random.choice([None, 1]))
        elif self.reader is None or what == 4:
            self.register()
        elif what <= 6:
            self.confirm(self.reader, unregister=what == 5)
        else:
            self.get(self.reader)

    def register(self) -> None:
        random = self.random
        offset = random.choice([NO_OFFSET, NO_OFFSET, random.randrange(30)])
        status = random.choice([FROM_START, FROM_START, FROM_END, ALWAYS_FROM_END])
        self.reader, promise = self.room.readings.register(
            self.room.partition, GROUP, "c", now_ms=0, offset=offset, read_status=status
        )
        assert self.reader.committed == self.model.register(offset, status)
        self.promises.append((promise, self.reader.committed))

    def confirm(self, reader: Reader, *, unregister: bool) -> None:
        consumed = self.random.random() < 0.7
        readings = self.room.readings
        end = readings.unregister if unregister else readings.confirm
        promise = end(reader, consumed=consumed)
        self.model.commit(consumed=consumed)
        self.promises.append((promise, reader.committed))
        if unregister:
            self.reader = None

    def get(self, reader: Reader) -> None:
        random, readings, log = self.random, self.room.readings, self.room.there.log
        consumed, manual, is_empty = (random.random() < 0.4 for _ in range(3))
        size = random.randrange(1, 4)
        expected = self.model.get(size, consumed=consumed, manual=manual, is_empty=is_empty)
        at = readings.begin(reader, consumed=consumed, manual=manual)
        if expected < 0:
            assert at >= log.high_watermark
            return
        assert at == expected
        end = min(at + size, log.high_watermark)
        readings.handed_out(reader, at, end, manual=manual, is_empty=is_empty)

    def check(self) -> None:
        if self.reader is not None:
            found = self.reader.committed, self.reader.temporary
            assert found == (self.model.committed, self.model.temporary)
        if self.promises:
            promise, offset = self.promises[-1]
            if promise is None:
                assert self.room.durable() == offset, "it was told at once"


@pytest.mark.parametrize("seed", range(20))
def test_positions_are_those_of_the_model_whatever_happens(seed):
    play = Play(seed)
    for _ in range(400):
        play.promises.clear()
        play.step()
        play.check()

    play.room.journal.commit()
    play.room.start()

    assert play.room.register().committed == play.model.register(NO_OFFSET, FROM_START)
