"""Durable subscriptions: the facts in the journal, and the state that comes back from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from trilogue.broker.cursors.cursor_facts import (
    RANGES_IN_FACT,
    decode_acked,
    snapshot_key,
    subscription_key,
)
from trilogue.broker.cursors.position import Cursor, PositionKey
from trilogue.broker.cursors.subscription_cursors import SubscriptionCursors, SubscriptionLimits
from trilogue.broker.errors import (
    InvalidName,
    MetadataTooLarge,
    StorageFailed,
    TooManyPositions,
    UnknownSubscription,
    UnknownTopic,
)
from trilogue.broker.facts import FactKind, SnapshotRow
from trilogue.log import errors as log_errors
from trilogue.log.journal.frame import MAX_FACT

S1, T1, S2 = (subscription_key(*each) for each in ((1, "s"), (1, "t"), (2, "s")))

State = dict[PositionKey, tuple[int, list[tuple[int, int]], dict[str, str]]]


@dataclass
class Bounds:
    start_offset: int = 0
    high_watermark: int = 1_000


class Facts:
    """A journal: facts in order, of which the first so many are durable."""

    def __init__(self) -> None:
        self.facts: list[tuple[int, bytes]] = []
        self.acks_from_memory: list[bool] = []
        self.durable = 0
        self.refusal: log_errors.LogError | None = None
        self._waiters: list[tuple[int, Callable[[BaseException | None], None]]] = []

    def add_fact(self, kind: int, payload: bytes, acks_from_memory: bool = False) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.facts.append((kind, payload))
        self.acks_from_memory.append(acks_from_memory)

    def on_commit(self, callback: Callable[[BaseException | None], None]) -> None:
        self._waiters.append((len(self.facts), callback))

    def commit(self, upto: int | None = None, error: BaseException | None = None) -> None:
        self.durable = len(self.facts) if upto is None else upto
        reported = [each for each in self._waiters if each[0] <= self.durable]
        self._waiters = [each for each in self._waiters if each[0] > self.durable]
        for _, callback in reported:
            callback(error)


class Room:
    """SubscriptionCursors on partitions 1 and 2, whose offsets go from 0 to 1000."""

    def __init__(self, limits: SubscriptionLimits | None = None) -> None:
        self.logs: dict[int, Bounds] = {1: Bounds(), 2: Bounds()}
        self.limits = limits
        self.rows: dict[bytes, bytes] = {}
        self.cut = 0
        self.journal = Facts()
        self.subscriptions = self.made()
        self.subscriptions.attach(self.journal)

    def made(self) -> SubscriptionCursors:
        return SubscriptionCursors(self.logs.__contains__, self.logs.get, lambda: 77, self.limits)

    def create(self, name: str = "s", mark: int = 0, partition_id: int = 1, **texts) -> Cursor:
        promise = self.subscriptions.create(partition_id, name, mark, texts)
        self.journal.commit()
        return promise.result()

    def flush(self, cut: int | None = None) -> None:
        """Bring a snapshot to meta, at a cut of so many facts."""
        self.cut = self.journal.durable if cut is None else cut
        for key, value in self.subscriptions.snapshot():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value

    def restarted(self) -> Room:
        """What comes up after a crash: the snapshot, and the durable facts after its cut."""
        back = Room(self.limits)
        back.logs = self.logs
        back.rows = dict(self.rows)
        back.cut = self.cut
        back.journal.facts = self.journal.facts[: self.journal.durable]
        back.journal.durable = self.journal.durable
        back.subscriptions = back.made()
        for value in back.rows.values():
            back.subscriptions.load(value)
        for kind, payload in back.journal.facts[back.cut :]:
            back.subscriptions.replay(kind, payload)
        back.subscriptions.attach(back.journal)
        return back

    @property
    def state(self) -> State:
        return state_of(self.subscriptions)


def state_of(subscriptions: SubscriptionCursors) -> State:
    return {each.key: (each.mark, each.ranges(), each.properties) for each in subscriptions}


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_subscription_is_there_when_it_is_durable_and_two_makers_share_it(room: Room):
    first = room.subscriptions.create(1, "s", 5)
    second = room.subscriptions.create(1, "s", 9)
    assert (first.done, room.subscriptions.find_cursor(1, "s")) == (False, None)

    room.journal.commit()

    cursor = first.result()
    assert second.result() is cursor is room.subscriptions.find_cursor(1, "s")
    assert room.subscriptions.create(1, "s", 50).result() is cursor
    assert (cursor.mark, cursor.created_ms, cursor.partition_id, cursor.name) == (5, 77, 1, "s")
    assert room.subscriptions.find_cursor(2, "s") is None
    assert len(room.journal.facts) == 1


def test_acks_are_true_at_once_and_no_caller_waits_for_them(room: Room):
    cursor = room.create()

    assert room.subscriptions.ack(cursor, [(3, 5), (7, 8)])
    assert room.subscriptions.ack_until(cursor, 2)
    assert not room.subscriptions.ack(cursor, [(3, 4), (0, 1)])
    assert not room.subscriptions.ack_until(cursor, 1)

    assert (cursor.mark, cursor.ranges()) == (2, [(3, 5), (7, 8)])
    assert room.subscriptions.backlog(cursor) == 1_000 - 2 - 3
    assert room.journal.acks_from_memory == [False, True, True]


def test_acks_are_restored_without_and_with_a_flush(room: Room):
    cursor = room.create(note="é")
    room.subscriptions.ack(cursor, [(3, 5), (7, 8)])
    room.journal.commit()
    without = room.restarted()
    room.flush()
    room.subscriptions.ack(cursor, [(20, 30)])
    room.subscriptions.ack_until(cursor, 4)
    room.journal.commit()
    with_one = room.restarted()

    assert without.state == {S1: (0, [(3, 5), (7, 8)], {"note": "é"})}
    assert with_one.state == room.state == {S1: (5, [(7, 8), (20, 30)], {"note": "é"})}


def test_acks_that_are_not_durable_are_lost_by_a_crash(room: Room):
    cursor = room.create()
    room.subscriptions.ack(cursor, [(3, 5)])
    room.subscriptions.create(1, "t", 0)

    assert room.restarted().state == {S1: (0, [], {})}


def test_a_deletion_is_answered_when_it_is_durable(room: Room):
    cursor = room.create()
    room.flush()
    promise = room.subscriptions.delete(1, "s")
    assert not promise.done
    assert room.subscriptions.find_cursor(1, "s") is None
    assert not room.subscriptions.ack(cursor, [(0, 5)])
    assert set(room.restarted().state) == {S1}

    room.journal.commit()

    assert promise.result() is None
    assert room.restarted().state == {}
    room.flush()
    assert room.rows == {}
    for attempt in (
        lambda: room.subscriptions.delete(1, "s"),
        lambda: room.subscriptions.reset(cursor, 0),
        lambda: room.subscriptions.set_properties(cursor, {}),
    ):
        with pytest.raises(UnknownSubscription):
            attempt()


def test_messages_that_policies_skip_are_counted_once(room: Room):
    cursor = room.create()
    room.subscriptions.ack(cursor, [(2, 4)])
    assert room.subscriptions.skip_until(1, 6) == 1
    assert cursor.expired == 4  # of six, two were acknowledged
    assert room.subscriptions.skip_until(1, 6) == 0
    assert room.subscriptions.skip_until(1, 7) == 1
    assert cursor.expired == 5


def test_one_that_is_made_again_begins_again(room: Room):
    cursor = room.create(mark=500)
    room.subscriptions.ack(cursor, [(600, 700)])
    room.subscriptions.delete(1, "s")

    again = room.create(mark=3)

    assert again is not cursor
    assert room.state == room.restarted().state == {S1: (3, [], {})}


def test_a_move_begins_again_and_is_answered_when_it_is_durable(room: Room):
    cursor = room.create()
    room.subscriptions.ack(cursor, [(0, 5), (7, 8)])
    promise = room.subscriptions.reset(cursor, 2)
    assert (cursor.mark, cursor.ranges(), promise.done) == (2, [], False)
    room.subscriptions.ack(cursor, [(3, 4)])

    room.journal.commit()

    assert promise.result() is None
    assert room.restarted().state == {S1: (2, [(3, 4)], {})}


def test_properties_replace_each_other_as_a_whole(room: Room):
    cursor = room.create(a="1", b="2")
    promise = room.subscriptions.set_properties(cursor, {"b": "3"})
    room.journal.commit()

    assert promise.result() is None
    assert room.restarted().state[S1][2] == {"b": "3"} == cursor.properties


def test_positions_stay_between_start_and_end(room: Room):
    room.logs[1] = Bounds(100, 200)
    low, high = room.create("low", mark=5), room.create("high", mark=500)
    assert (low.mark, high.mark) == (100, 200)

    room.subscriptions.reset(low, 1_000)
    assert low.mark == 200
    room.subscriptions.reset(low, -1)
    assert low.mark == 100
    room.subscriptions.ack(low, [(190, 300), (250, 260), (50, 110)])
    assert (low.mark, low.ranges()) == (110, [(190, 200)])
    room.subscriptions.ack_until(low, 2**62)
    assert low.mark == 200


def test_marks_follow_a_start_that_moves_up(room: Room):
    cursor = room.create()
    room.subscriptions.ack(cursor, [(50, 60), (90, 95)])
    room.journal.commit()
    room.flush()
    room.logs[1].start_offset = 50

    assert room.restarted().state == {S1: (60, [(90, 95)], {})}
    assert room.subscriptions.backlog(cursor) == 1_000 - 60 - 5
    assert room.subscriptions.find_cursor(1, "s") is cursor
    assert cursor.mark == 60
    [row] = room.subscriptions.snapshot()
    assert row.key == snapshot_key(cursor.key)


def test_after_a_salvage_the_next_messages_do_not_count_as_acked(room: Room):
    cursor = room.create()
    room.subscriptions.ack(cursor, [(0, 500), (600, 700), (800, 900)])
    room.create("t", mark=650)
    room.journal.commit()
    room.flush()
    room.logs[1].high_watermark = 650

    back = room.restarted()
    assert back.state == {
        S1: (500, [(600, 650)], {}),
        T1: (650, [], {}),
    }

    room.logs[1].high_watermark = 400
    back = room.restarted()
    assert back.state == {
        S1: (400, [], {}),
        T1: (400, [], {}),
    }
    back.journal.commit()
    room.logs[1].high_watermark = 2_000
    assert {mark for mark, _, _ in back.restarted().state.values()} == {400}


def test_subscriptions_go_with_their_partition(room: Room):
    cursor = room.create()
    room.create(partition_id=2)
    room.flush()
    coming = room.subscriptions.create(1, "late", 0)
    del room.logs[1]
    room.subscriptions.drop([1])
    room.journal.commit()

    with pytest.raises(UnknownTopic):
        coming.result()
    with pytest.raises(UnknownTopic):
        room.subscriptions.create(1, "s", 0)
    assert (cursor.gone, len(room.subscriptions)) == (True, 1)
    assert set(room.state) == {S2}

    back = room.restarted()  # the row is still in meta, and the fact in the journal
    assert set(back.state) == {S2}
    assert SnapshotRow(snapshot_key(cursor.key), None) in back.subscriptions.snapshot()


def test_names_properties_and_numbers_are_bounded():
    room = Room(SubscriptionLimits(count_max=2, properties_size_max=10))
    for name in ("", "x" * 1_025, "é" * 513):
        with pytest.raises(InvalidName):
            room.subscriptions.create(1, name, 0)
    with pytest.raises(MetadataTooLarge):
        room.subscriptions.create(1, "s", 0, {"12345": "678", "é": "x"})
    cursor = room.create("x" * 1_024, note="123456")
    with pytest.raises(MetadataTooLarge):
        room.subscriptions.set_properties(cursor, {"12345": "678901"})
    room.subscriptions.create(1, "t", 0)
    with pytest.raises(TooManyPositions):
        room.subscriptions.create(1, "u", 0)


def test_so_many_ranges_are_kept_in_memory_and_so_many_in_a_snapshot():
    room = Room(SubscriptionLimits(ranges_max=4, ranges_kept=2))
    cursor = room.create()
    for offset in range(10, 30, 2):
        room.subscriptions.ack(cursor, [(offset, offset + 1)])
    assert cursor.ranges() == [(10, 11), (12, 13), (14, 15), (16, 17)]

    assert room.subscriptions.ack(cursor, [(17, 18)])
    assert room.subscriptions.ack(cursor, [(11, 12)])
    assert room.subscriptions.ack(cursor, [(0, 2)])

    assert cursor.ranges() == [(10, 13), (14, 15), (16, 18)]
    room.journal.commit()
    room.flush()
    assert room.restarted().state[cursor.key] == (2, [(10, 13), (14, 15)], {})


def test_many_ranges_become_facts_that_fit():
    room = Room()
    room.logs[1].high_watermark = 1 << 62
    cursor = room.create("x" * 1_024)
    before = len(room.journal.facts)

    room.subscriptions.ack(cursor, [(at, at + 1) for at in range(1, 2 * RANGES_IN_FACT + 9, 2)])

    facts = [payload for _, payload in room.journal.facts[before:]]
    assert [len(decode_acked(each).ranges) for each in facts] == [RANGES_IN_FACT, 4]
    assert max(map(len, facts)) < MAX_FACT


def test_a_journal_that_fails_breaks_what_was_promised(room: Room):
    cursor = room.create()
    promises = [
        room.subscriptions.create(1, "t", 0),
        room.subscriptions.reset(cursor, 5),
        room.subscriptions.set_properties(cursor, {}),
        room.subscriptions.delete(1, "s"),
    ]
    room.journal.commit(error=OSError("no disk"))

    assert all(isinstance(each.error, StorageFailed) for each in promises)
    assert room.subscriptions.find_cursor(1, "t") is None
    room.journal.refusal = log_errors.StorageFailed("no disk")
    with pytest.raises(StorageFailed):
        room.subscriptions.create(1, "u", 0)


@pytest.mark.parametrize("seed", range(40))
def test_a_snapshot_ahead_of_its_cut_ends_where_the_facts_end(seed: int):
    """Whatever the snapshot knows already, the facts after its cut lead to the same state."""
    random = Random(seed)
    room = Room()
    cuts = sorted(random.sample(range(1, 120), 2))
    for step in range(120):
        if step in cuts:  # memory knows all facts, the cut is somewhere before
            cut = random.randint(room.journal.durable, len(room.journal.facts))
            room.journal.commit(cut)
            room.flush(cut)
        else:
            act(room, random)
    room.journal.commit()

    assert room.restarted().state == room.state


@pytest.mark.parametrize("seed", range(40))
def test_without_a_flush_exactly_the_durable_facts_come_back(seed: int):
    random = Random(seed)
    room = Room()
    for _ in range(6):
        for _ in range(20):
            act(room, random)
        room.journal.commit(random.randint(room.journal.durable, len(room.journal.facts)))
        expected = from_facts_alone(room)
        room = room.restarted()
        assert room.state == expected


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_takes_no_subscription_and_no_ack_that_was_durable(seed: int):
    """With flushes, whose snapshots may know acks that the crash then takes: those may stay."""
    random = Random(seed)
    room = Room()
    for _ in range(6):
        for _ in range(20):
            act(room, random, change=False)
        room.journal.commit(random.randint(room.journal.durable, len(room.journal.facts)))
        if random.random() < 0.5:
            room.flush()
        durable, requested = from_facts_alone(room), room.state
        room = room.restarted()
        assert durable.keys() <= room.state.keys() <= requested.keys()
        for key, now in room.state.items():
            assert offsets(now) <= offsets(requested[key])
            assert key not in durable or offsets(durable[key]) <= offsets(now)


def act(room: Room, random: Random, *, change: bool = True) -> None:
    """One request of a client."""
    partition_id, name = random.randint(1, 2), random.choice("ab")
    cursor = room.subscriptions.find_cursor(partition_id, name)
    first = random.randrange(60)
    what = random.randrange(10)
    if cursor is None:
        room.subscriptions.create(partition_id, name, first)
        if random.random() < 0.7:
            room.journal.commit()
    elif what == 0 and change:
        room.subscriptions.delete(partition_id, name)
    elif what == 1 and change:
        room.subscriptions.reset(cursor, first)
    elif what == 2:
        room.subscriptions.set_properties(cursor, {"n": str(first)})
    elif what == 3:
        room.subscriptions.ack_until(cursor, cursor.mark + random.randrange(5))
    else:
        room.subscriptions.ack(cursor, [(first, first + random.randrange(1, 5))])


def from_facts_alone(room: Room) -> State:
    """What all durable facts of all times come to, without snapshots."""
    fresh = room.made()
    for kind, payload in room.journal.facts[: room.journal.durable]:
        fresh.replay(kind, payload)
    return state_of(fresh)


def offsets(state: tuple[int, list[tuple[int, int]], object]) -> set[int]:
    mark, ranges, _ = state
    return set(range(mark)).union(*(range(start, end) for start, end in ranges))


def test_replay_ignores_facts_of_an_unknown_subscription(room: Room):
    cursor = room.create()
    room.subscriptions.ack(cursor, [(1, 2)])
    room.subscriptions.reset(cursor, 3)
    room.subscriptions.set_properties(cursor, {"a": "b"})
    room.subscriptions.delete(1, "s")
    later = [each for each in room.journal.facts if each[0] != FactKind.SUBSCRIPTION_CREATED]
    fresh = room.made()

    for kind, payload in later:
        fresh.replay(kind, payload)

    assert (len(fresh), fresh.snapshot()) == (0, [])
