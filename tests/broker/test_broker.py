from __future__ import annotations

import pytest

from tests.broker.fakes import FakeLog, FakeTimers, batch, header, new_broker
from trilogue.broker.broker import Broker, ProducerIdentity
from trilogue.broker.broker_settings import BrokerSettings
from trilogue.broker.errors import OutOfOrderSequence, ProducerIdsExhausted
from trilogue.broker.facts import (
    CursorMove,
    CursorMoves,
    FactKind,
    ProducerMark,
    Protocol,
    SnapshotRow,
    cursor_key,
    encode_mark,
    encode_moves,
    producer_key,
)
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.names import parse_kafka
from trilogue.broker.topics.cluster import ClusterLimits
from trilogue.broker.topics.topic import Topic
from trilogue.log.errors import CorruptLog
from trilogue.meta.errors import NoIdsLeft
from trilogue.meta.memory import MemoryMeta

KAFKA = Protocol.KAFKA


class Room:
    """A broker over a meta in memory and a log of offsets, with one topic of one partition."""

    def __init__(self, meta: MemoryMeta | None = None) -> None:
        self.timers = FakeTimers()
        self.log = FakeLog()
        self.meta = meta or MemoryMeta()
        self.broker = new_broker(
            self.meta,
            self.timers,
        )
        for row in self.meta.state.topics.values():
            for partition_id in row.partitions:
                self.log.create_partition(partition_id, 1)

    def attach(self) -> Room:
        self.broker.attach(self.log, self.log)
        return self

    def create(self, name: str = "orders") -> Topic:
        cluster = self.broker.cluster
        commit = cluster.plan_create(cluster.check_create(parse_kafka(name)))
        self.meta.write_now(commit.ops(), commit.preconditions)
        return commit.apply()


@pytest.fixture
def room() -> Room:
    made = Room().attach()
    made.create()
    return made


@pytest.fixture
def partition_id(room: Room) -> int:
    return topic_of(room).row.partitions[0]


def topic_of(room: Room) -> Topic:
    return next(iter(room.broker.cluster))


def test_a_commit_of_positions_is_durable_before_it_is_seen(room: Room, partition_id: int):
    room.timers.advance(7)

    promise = room.broker.commit(KAFKA, "g", [CursorMove(partition_id, 5)])
    before = promise.done, room.broker.committed_offsets.position(KAFKA, "g", partition_id)
    room.log.commit()

    position = room.broker.committed_offsets.position(KAFKA, "g", partition_id)
    assert before == (False, None)
    assert position is not None
    assert (position.mark, position.committed_ms) == (5, 7_000)


def test_producer_ids_are_never_given_twice(room: Room):
    identities = [room.broker.init_producer_id() for _ in range(3)]

    assert len({each.producer_id for each in identities}) == 3
    assert identities[0] == ProducerIdentity(identities[0].producer_id, 0)


def test_lack_of_ids_raises_producer_ids_exhausted():
    def allocate(kind: str) -> int:
        raise NoIdsLeft(kind)

    broker = Broker(
        MemoryMeta().state,
        allocate=allocate,
        timers=FakeTimers(),
        now_ms=lambda: 0,
        new_topic_id=bytes,
        new_member_suffix=str,
        settings=BrokerSettings(cluster=ClusterLimits(default_partitions=4)),
    )

    with pytest.raises(ProducerIdsExhausted):
        broker.init_producer_id()
    assert broker.cluster.limits.default_partitions == 4


def test_a_snapshot_has_positions_and_producers_that_are_durable(room: Room, partition_id: int):
    partition = topic_of(room).partition(0)
    partition.append(batch(2, producer=(9, 0, 0)), now_ms=0)
    room.broker.commit(KAFKA, "g", [CursorMove(partition_id, 1)])
    before = room.broker.snapshot()
    room.log.commit()

    keys = [row.key for row in room.broker.snapshot()]

    assert before == []
    assert keys == [cursor_key(KAFKA, "g", partition_id), producer_key(partition_id, 9)]
    assert room.broker.snapshot() == []


def test_snapshot_and_replay_restore_the_broker_after_a_start(room: Room, partition_id: int):
    partition = topic_of(room).partition(0)
    partition.append(batch(2, producer=(9, 0, 0)), now_ms=0)
    room.broker.commit(KAFKA, "g", [CursorMove(partition_id, 1)])
    room.log.commit()
    rows = room.broker.snapshot()

    back = Room(room.meta)
    back.broker.restore_snapshot([(key, value) for key, value in rows if value is not None])
    back.broker.restore_entry(partition_id, header(2, 3, producer=(9, 0, 2)))
    back.broker.restore_entry(partition_id, header(5))
    back.broker.apply_fact(
        FactKind.CURSOR_MOVE,
        encode_moves(CursorMoves(KAFKA, "h", 3, [CursorMove(partition_id, 4)])),
    )
    back.broker.apply_fact(
        FactKind.PRODUCER_MARK, encode_mark(ProducerMark(partition_id, 8, 2, 0, 0, ()))
    )
    back.attach()

    restored = topic_of(back).partition(0)
    assert restored.append(batch(3, producer=(9, 0, 2)), now_ms=0).duplicate
    assert not restored.append(batch(1, producer=(9, 0, 5)), now_ms=0).duplicate
    with pytest.raises(OutOfOrderSequence):
        restored.append(batch(1, producer=(9, 0, 9)), now_ms=0)
    assert sorted(back.broker.committed_offsets.names(KAFKA)) == ["g", "h"]
    assert len(back.broker.producers) == 2


def test_restore_ignores_deleted_partitions_and_removes_their_rows():
    gone = 4_711
    mark = ProducerMark(gone, 8, 2, 0, 0, ())
    moves = CursorMoves(KAFKA, "g", 3, [CursorMove(gone, 4)])
    broker = Room().attach().broker
    broker.restore_snapshot(
        [
            (cursor_key(KAFKA, "g", gone), encode_moves(moves)),
            (producer_key(gone, 8), encode_mark(mark)),
        ]
    )
    broker.restore_entry(gone, header(0, producer=(8, 0, 0)))
    broker.apply_fact(FactKind.PRODUCER_MARK, encode_mark(mark))
    broker.apply_fact(FactKind.CURSOR_MOVE, encode_moves(moves))

    assert (len(broker.committed_offsets), len(broker.producers)) == (0, 0)
    assert broker.snapshot() == [
        SnapshotRow(cursor_key(KAFKA, "g", gone), None),
        SnapshotRow(producer_key(gone, 8), None),
    ]


def test_deleting_a_topic_takes_its_positions_and_producers_with_it(room: Room, partition_id: int):
    topic_of(room).partition(0).append(batch(1, producer=(9, 0, 0)), now_ms=0)
    room.broker.commit(KAFKA, "g", [CursorMove(partition_id, 1)])
    room.log.commit()
    room.broker.snapshot()

    commit = room.broker.cluster.plan_delete(topic_of(room).name)
    room.meta.write_now(commit.ops(), commit.preconditions)
    commit.apply()

    assert {row.value for row in room.broker.snapshot()} == {None}
    assert (len(room.broker.committed_offsets), len(room.broker.producers)) == (0, 0)


def test_config_resources_that_are_unknown_stop_the_start():
    broker = Room().broker

    with pytest.raises(CorruptLog):
        broker.apply_fact(99, b"")
    with pytest.raises(CorruptLog):
        broker.restore_snapshot([(b"x", b"")])


def test_groups_live_on_the_timers_of_the_broker(room: Room):
    promise = room.broker.groups.join(
        JoinRequest("g", "", "consumer", (("range", b""),), 10_000, 60_000)
    )

    room.timers.advance(1)

    assert promise.result().generation == 1
