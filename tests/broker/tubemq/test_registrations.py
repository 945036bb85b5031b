"""Registrations of TubeMQ groups, and their positions (docs/reference/wire/tubemq.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import cast

import pytest

from tests.broker.fakes import FakeLog
from trilogue.broker.cursors.committed_offsets import CommittedOffsets
from trilogue.broker.errors import NotAllowed, TooManyPositions
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.promise import Promise
from trilogue.broker.topics.partition import Partition
from trilogue.broker.tubemq.registrations import (
    NO_OFFSET,
    Registration,
    RegistrationLimits,
    Registrations,
    StartFrom,
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
    """What registrations need of a partition."""

    partition_id: int = 1
    log: Log = field(default_factory=Log)


class Room:
    """Registrations over offsets whose journal the test makes durable."""

    def __init__(self, limits: RegistrationLimits | None = None) -> None:
        self.journal = FakeLog()
        self.offsets = CommittedOffsets(lambda _: True)
        self.offsets.attach(self.journal)
        self.limits = limits
        self.there = OnePartition()
        self.partition = cast("Partition", self.there)
        self.start()

    def start(self) -> None:
        """A node begins, with what was durable."""
        self.registrations = Registrations(
            lambda group, moves: self.offsets.commit(Protocol.TUBEMQ, group, moves, 0),
            lambda group, number: self.offsets.position(Protocol.TUBEMQ, group, number),
            self.limits,
        )

    def register(self, client: str = "c", **how: int) -> Registration:
        return self.registrations.register(self.partition, GROUP, client, **{"now_ms": 0, **how})[0]

    def durable(self) -> int | None:
        position = self.offsets.position(Protocol.TUBEMQ, GROUP, 1)
        return None if position is None else position.mark

    def read(self, reader: Registration, end: int, **how: bool) -> int:
        """One get, up to an offset; where it began."""
        manual = how.get("manual", False)
        start = self.registrations.begin_read(
            reader, consumed=how.get("consumed", False), manual=manual
        )
        self.registrations.record_read(
            reader, start, end, manual=manual, is_empty=how.get("is_empty", False)
        )
        return start


def test_position_of_a_new_group_is_durable_before_the_reply():
    room = Room()
    room.there.log.high_watermark = 7

    reader, promise = room.registrations.register(
        room.partition, GROUP, "c", now_ms=0, start_from=StartFrom.END
    )

    assert reader.committed == 7
    assert promise is not None
    assert not promise.done
    room.journal.commit()
    assert promise.done
    assert room.durable() == 7


def test_a_confirm_is_reported_when_it_is_durable_and_the_reader_goes_on_at_once():
    room = Room()
    room.there.log.high_watermark = 9
    reader = room.register()
    room.journal.commit()
    assert room.read(reader, 4) == 0

    promise = room.registrations.confirm(reader, consumed=True)

    assert promise is not None
    assert (promise.done, room.durable()) == (False, 0)
    assert room.read(reader, 6) == 4
    again = room.registrations.confirm(reader, consumed=False)
    assert again is promise, "what is told with it is not durable yet"
    room.journal.commit()
    assert (promise.done, room.durable()) == (True, 4)


def test_the_next_reader_begins_where_the_last_one_was_also_when_that_is_not_durable_yet():
    room = Room()
    room.there.log.high_watermark = 9
    first = room.register("first")
    room.read(first, 5)
    room.registrations.unregister(first, consumed=True)

    second, promise = room.registrations.register(room.partition, GROUP, "second", now_ms=0)

    assert second.committed == 5
    assert promise is not None
    room.journal.commit()
    assert promise.done


def test_moves_on_their_way_do_not_hide_later_ones():
    room = Room()
    room.there.log.high_watermark = 200
    room.registrations.reset(room.partition, GROUP, 100)
    room.registrations.reset(room.partition, GROUP, 50)
    room.registrations.reset(room.partition, GROUP, 100)
    for _ in range(3):
        assert room.registrations.position(1, GROUP) == 100
        room.journal.commit(waiters=1)
    assert room.registrations.position(1, GROUP) == 100


def test_a_negative_position_is_none():
    room = Room()
    room.there.log.high_watermark = 3
    room.offsets.commit(Protocol.TUBEMQ, GROUP, [CursorMove(1, -1)], 0)
    room.journal.commit()

    assert room.register(start_from=StartFrom.END).committed == 3


def test_start_offset_of_a_bound_group_applies_to_the_first_registration():
    room = Room()
    room.there.log.high_watermark = 9
    room.registrations.begin_at(1, GROUP, 6)
    room.registrations.begin_at(2, GROUP, 6)
    reader = room.register(offset=3)
    assert reader.committed == 6
    assert room.register(offset=3).committed == 3
    room.registrations.forget_starts(GROUP)
    room.there.partition_id = 2
    assert room.register().committed == 0


def test_a_silent_reader_is_let_go_of_and_what_it_has_is_not_confirmed():
    room = Room(RegistrationLimits(session_ms=10))
    room.there.log.high_watermark = 9
    gone: list[Registration] = []
    room.registrations.on_gone.append(gone.append)
    reader = room.register()
    room.read(reader, 4)
    room.registrations.touch(reader, 5)

    assert room.registrations.occupant(1, GROUP, "other", 15) == "c"
    assert room.registrations.expire(15) == []
    assert room.registrations.expire(16) == [reader]
    assert gone == [reader]
    assert reader.is_gone
    assert room.registrations.find_registration(1, GROUP) is None
    assert room.registrations.consumer(GROUP, "c") is None
    assert room.register("other").committed == 0


def test_whose_session_is_over_does_not_stand_in_the_way():
    room = Room(RegistrationLimits(session_ms=10))
    room.register()
    assert room.registrations.occupant(1, GROUP, "c", 0) == ""
    assert room.registrations.occupant(1, GROUP, "other", 11) == ""
    assert len(room.registrations) == 0


def test_a_registration_of_a_broker_id_that_is_over_keeps_no_other_client_out():
    """Its client names the partition by that id in heartbeats, and gives it up at their answer."""
    room = Room()
    reader, _ = room.registrations.register(room.partition, GROUP, "c", now_ms=0, broker_id=7)
    room.read(reader, 4)

    assert room.registrations.occupant(1, GROUP, "other", 1, broker_id=7) == "c"
    assert room.registrations.occupant(1, GROUP, "c", 1, broker_id=8) == ""
    assert not reader.is_gone, "its own client replaces it"
    assert room.registrations.occupant(1, GROUP, "other", 1, broker_id=8) == ""
    assert reader.is_gone
    assert room.register("other").committed == 0, "nothing was confirmed"


def test_there_are_so_many_readers_and_filters_and_no_more():
    room = Room(RegistrationLimits(readers_max=1, filters_max=1, filter_size_max=3))
    room.register()
    room.register()
    with pytest.raises(TooManyPositions):
        room.registrations.register(room.partition, "another", "c", now_ms=0)
    for filters in (["a", "b"], ["long"]):
        with pytest.raises(NotAllowed):
            room.registrations.register(room.partition, GROUP, "c", now_ms=0, filters=filters)


def test_text_size_of_registrations_is_limited():
    """The present registrations count: one that ends, or is replaced, makes room."""
    size = len(GROUP) + len("c") + len("ab")
    room = Room(RegistrationLimits(text_size_max=size))
    for _ in range(3):
        reader, _ = room.registrations.register(
            room.partition, GROUP, "c", now_ms=0, filters=["ab"]
        )
    with pytest.raises(TooManyPositions):
        room.registrations.register(room.partition, "x", "c", now_ms=0)
    room.registrations.unregister(reader, consumed=False)
    room.registrations.register(room.partition, "x", "c", now_ms=0)


def test_partitions_that_are_deleted_have_no_readers():
    room = Room()
    reader = room.register()
    room.registrations.begin_at(1, GROUP, 4)

    room.registrations.drop([1])

    assert reader.is_gone
    assert room.register().committed == 0


@pytest.mark.parametrize("manual", [False, True])
def test_read_for_a_reset_position_moves_no_offset(*, manual: bool):
    room = Room()
    room.there.log.high_watermark = 9
    moved: list[Registration] = []
    room.registrations.on_moved.append(moved.append)
    reader = room.register()
    start = room.registrations.begin_read(reader, consumed=False, manual=manual)
    room.registrations.reset(room.partition, GROUP, 7)

    room.registrations.record_read(reader, start, 5, manual=manual, is_empty=False)

    assert (reader.committed, reader.temporary) == (7, 0)
    assert moved == [reader]


def test_both_ways_of_reading_skip_messages_removed_by_retention():
    room = Room()
    room.there.log.high_watermark = 9
    reader = room.register()
    room.read(reader, 2, manual=True)
    room.there.log.start_offset = 5
    assert room.registrations.begin_read(reader, consumed=False, manual=True) == 5
    assert room.registrations.begin_read(reader, consumed=False, manual=False) == 5
    assert (reader.committed, reader.temporary) == (5, 0)


# ---- a small plain model of positions


class Model:
    """The position of one group, as the protocol defines it."""

    def __init__(self) -> None:
        self.first = self.end = 0
        self.committed: int | None = None
        self.temporary = 0
        self.reported = -1  # of what was durable at its response

    def register(self, offset: int, status: int) -> int:
        self.temporary = 0
        if status == StartFrom.ALWAYS_END:
            self.committed = self.end
        elif offset >= 0:
            self.committed = sorted((self.first, offset, self.end))[1]
        elif self.committed is None:
            self.committed = self.first if status == StartFrom.FIRST_MESSAGE else self.end
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
        self.reader: Registration | None = None
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
        status = random.choice(
            [StartFrom.FIRST_MESSAGE, StartFrom.FIRST_MESSAGE, StartFrom.END, StartFrom.ALWAYS_END]
        )
        self.reader, promise = self.room.registrations.register(
            self.room.partition, GROUP, "c", now_ms=0, offset=offset, start_from=status
        )
        assert self.reader.committed == self.model.register(offset, status)
        self.promises.append((promise, self.reader.committed))

    def confirm(self, reader: Registration, *, unregister: bool) -> None:
        consumed = self.random.random() < 0.7
        registrations = self.room.registrations
        end = registrations.unregister if unregister else registrations.confirm
        promise = end(reader, consumed=consumed)
        self.model.commit(consumed=consumed)
        self.promises.append((promise, reader.committed))
        if unregister:
            self.reader = None

    def get(self, reader: Registration) -> None:
        random, registrations, log = self.random, self.room.registrations, self.room.there.log
        consumed, manual, is_empty = (random.random() < 0.4 for _ in range(3))
        size = random.randrange(1, 4)
        expected = self.model.get(size, consumed=consumed, manual=manual, is_empty=is_empty)
        at = registrations.begin_read(reader, consumed=consumed, manual=manual)
        if expected < 0:
            assert at >= log.high_watermark
            return
        assert at == expected
        end = min(at + size, log.high_watermark)
        registrations.record_read(reader, at, end, manual=manual, is_empty=is_empty)

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

    assert play.room.register().committed == play.model.register(NO_OFFSET, StartFrom.FIRST_MESSAGE)
